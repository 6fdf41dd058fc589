"""All that the driver holds in memory, and the moves of a row that the verbs share.

One `State` is shared by an adapter and its clones, which may live in other threads: whoever reads or writes
it holds `lock`, for one short step that never awaits.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import count
from typing import Any

from nimbusq.clock import Clock
from nimbusq.driver import DriverSettings, FailedRecord, HistoryRow, ScheduleState
from nimbusq_sync.agenda import Agenda
from nimbusq_sync.batch import Batch
from nimbusq_sync.bells import Bells
from nimbusq_sync.expiring import Expiring
from nimbusq_sync.queues import Queue
from nimbusq_sync.row import Row
from nimbusq_sync.tombstones import Tombstones
from nimbusq_sync.workers import Crew

AuditTuple = tuple[str, str, str, int, dict[str, Any]]


class State:
    """The store.

    Its time never jumps: the epoch at the start plus what the monotonic clock has run since. Times are whole
    microseconds, since sums of floats are not exact and a job must be due when its delay is over.
    """

    def __init__(self, clock: Clock, settings: DriverSettings) -> None:
        self.lock = threading.Lock()
        self.clock = clock
        self.settings = settings
        self.bells = Bells(self.lock)
        self.skew = 0.0
        self.audit: list[AuditTuple] | None = [] if settings.testing else None
        self._origin = clock.time() - clock.monotonic()
        self._numbers = count(1)

        self.rows: dict[str, Row] = {}
        self.queues: dict[str, Queue] = {}
        self.leases = Agenda()
        self.held: dict[str, dict[str, Row]] = {}  # claim token -> the rows that carry it
        self.tombstones = Tombstones()

        self.unique: dict[str, str] = {}  # digest -> job id
        self.overlaps: dict[str, dict[str, Row]] = {}  # digest -> holders by id
        self.locks: Expiring[str] = Expiring()
        self.rates: Expiring[float] = Expiring()
        self.batches: Expiring[Batch] = Expiring()
        self.results: Expiring[bytes] = Expiring()

        self.failed: dict[str, tuple[int, FailedRecord]] = {}
        self.history: OrderedDict[str, tuple[int, HistoryRow]] = OrderedDict()
        self.schedules: dict[str, ScheduleState] = {}
        self.crew = Crew()

    def now(self) -> float:
        return round(self._origin + self.clock.monotonic() + self.skew, 6)

    def number(self) -> int:
        """Rises with every use: the order of arrival."""
        return next(self._numbers)

    def queue(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            self.queues[name] = queue = Queue()
        return queue

    def note(self, event: str, row: Row, token: str, now: float, **extra: Any) -> None:
        """Append to the audit, in the step that makes the transition (testing mode only)."""
        if self.audit is not None:
            self.audit.append((event, row.id, token, row.attempt, {"at": now, **extra}))

    def line_up(self, row: Row, now: float) -> None:
        """Let the row wait for its `run_at`, and wake the claims that wait for its queue."""
        self.queue(row.queue).add(row, self.number(), now)
        self.bells.ring_queue(row.queue)

    def lease(self, row: Row, token: str, until: float, now: float) -> None:
        """Give the row, which has left its line, to a claim. Nothing else writes a token."""
        row.token = token
        row.fence += 1
        row.lease_until = until
        row.renewed_at = now
        row.put_back_by = None
        self.leases.add(until, self.number(), row)
        self.held.setdefault(token, {})[row.id] = row
        self.queue(row.queue).running += 1

    def unlease(self, row: Row, token: str) -> None:
        """Take the row from its holder: token, lease and overlap key are gone."""
        self.leases.discard(row)
        held = self.held[token]
        del held[row.id]
        if not held:
            del self.held[token]
        self.queue(row.queue).running -= 1
        if row.overlap:
            self._free_overlap(row.overlap, row.id)
        row.token = None
        row.claim = None

    def _free_overlap(self, overlap: str, job_id: str) -> None:
        holders = self.overlaps.get(overlap)
        if holders and holders.pop(job_id, None) and not holders:
            del self.overlaps[overlap]
