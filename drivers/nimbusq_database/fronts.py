"""Where the jobs of a backlog begin, so that a claim need not read past all that have left before them.

PostgreSQL's index keeps the entries of jobs that have left until they are vacuumed, and in the order of their times,
so that they lie at its front, where every claim begins: after 100,000 jobs that is 700 pages to read for each call.
While claims come back full, the next one begins where the last one found its first job. What comes to lie before that
all the same (a transaction that was open for long, a job or a queue that is resumed) waits for the next whole look:
the first claim after a tenth of a second, or after one that came back with less than it asked for. One that finds
nothing looks at the whole before it says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from nimbusq.driver import Lane, Want
from nimbusq_database.client import Row

_WHOLE_EVERY: Final = 0.1
"""Seconds between two whole looks."""
_LATE: Final = 1.0
"""Seconds by which a push may be committed after the time that it gives its jobs, and be seen by any claim."""
_LOWEST: Final = 10
"""The priority that is claimed last, as in sql/postgres/parts/takes.sql."""


class Front(NamedTuple):
    """A claim saw no job before the one that was due at `since` as number `seq`, down to the priority `reach`."""

    since: float = 0.0
    seq: int = 0
    reach: int = 0


_UNKNOWN: Final = Front()


class Fronts:
    """What the claims of one adapter know of each queue. Owned by the event loop of its worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._fronts: dict[str, Front] = {}
        self._lapsed_after = 0.0
        """No lease that ended before was there at the last look."""
        self._whole_at = float("-inf")
        """When the last whole look began."""

    def parameters(self, lanes: Sequence[Lane]) -> dict[str, Any]:
        """Of the next claim."""
        now = self._clock()
        if now - self._whole_at >= _WHOLE_EVERY:
            self._forget()
            self._whole_at = now
        fronts = [self._fronts.get(lane.queue, _UNKNOWN) for lane in lanes]
        return {
            "fronts": [front.since for front in fronts],
            "first_seqs": [front.seq for front in fronts],
            "reaches": [front.reach for front in fronts],
            "lapsed_after": self._lapsed_after,
        }

    def note(self, want: Want, rows: Sequence[Row]) -> None:
        """What a claim has found, in the order in which it looked; no rows where that says nothing."""
        self._forget()
        if not rows or len(rows) < min(want.limit, sum(lane.limit for lane in want.lanes)):
            return
        seen = rows[0]["now"] - _LATE
        self._lapsed_after = seen
        found = _by_queue(rows)
        for lane in want.lanes:
            if jobs := found.pop(lane.queue, None):
                self._fronts[lane.queue] = Front(*min(_first(jobs), (seen, 0)), jobs[-1]["priority"])
            elif lane.limit > 0:
                self._fronts[lane.queue] = Front(seen, 0, _LOWEST)
            if not found:
                return  # the limit was reached in this lane: nobody has looked at those behind it

    def _forget(self) -> None:
        self._fronts.clear()
        self._lapsed_after = 0.0


def _by_queue(rows: Sequence[Row]) -> dict[str, Sequence[Row]]:
    if rows[0]["queue"] == rows[-1]["queue"]:
        return {rows[0]["queue"]: rows}
    return {queue: list(jobs) for queue, jobs in groupby(rows, itemgetter("queue"))}


def _first(jobs: Sequence[Row]) -> tuple[float, int]:
    """Of one queue. Within a priority they are in their order."""
    if jobs[0]["priority"] == jobs[-1]["priority"]:
        return jobs[0]["run_at"], jobs[0]["seq"]
    return min((job["run_at"], job["seq"]) for job in jobs)
