"""The stores that a backend backs besides the queue itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol, TypeAlias

from nimbusq.driver.batches import BatchStore
from nimbusq.driver.claims import Claim, Pushed
from nimbusq.driver.settlements import FailedRecord, HistoryRow
from nimbusq.envelope import Envelope, Rate, Unreadable


class Locker(Protocol):
    """Named locks with a time to live in seconds, freed early only by their token."""

    async def acquire(self, key: str, ttl: float) -> str | None:
        """The token of the lock, or None while somebody else holds it."""
        ...

    async def extend(self, key: str, token: str, ttl: float) -> bool: ...

    async def release(self, key: str, token: str) -> bool: ...

    async def force_release(self, key: str) -> bool:
        """Drop the lock whoever holds it."""
        ...

    async def holder(self, key: str) -> str | None:
        """The holder's token (a job's id where a unique lock is held), without acquiring anything."""
        ...


@dataclass(frozen=True, slots=True)
class Reserved:
    """granted: of the n asked for. retry_after: seconds until the next could be granted (0 when all were)."""

    granted: int
    retry_after: float = 0.0


class JobLimiter(Protocol):
    """Rates by the generic cell rate algorithm, on the store's clock, for the whole fleet."""

    async def reserve(self, rate: Rate, n: int = 1) -> Reserved: ...

    async def give_back(self, rate: Rate, n: float = 1) -> None:
        """Starts that were reserved and not used. A part of one is given back of a reservation that was held for a
        while: what came in meanwhile must not run over the burst."""
        ...


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one cause. Times are epoch seconds."""

    fingerprint: str
    name: str
    kind: str
    error: str
    count: int
    first_at: float
    last_at: float


class FailedStore(Protocol):
    """Jobs that failed for good, newest first, until forgotten."""

    async def push(self, record: FailedRecord) -> None:
        """Insert, or replace the record of that id."""
        ...

    async def get(self, job_id: str) -> FailedRecord | None: ...

    async def page(
        self, *, cursor: str = "", limit: int = 50, queue: str | None = None, fingerprint: str | None = None
    ) -> tuple[Sequence[FailedRecord], str]:
        """Records, and the cursor of the next page ("" at the end)."""
        ...

    async def count(self, *, queue: str | None = None) -> int: ...

    async def groups(self, *, limit: int = 50) -> Sequence[FailureGroup]: ...

    async def forget(self, job_id: str) -> bool: ...

    async def forget_all(self, *, queue: str | None = None, older_than: float | None = None) -> int: ...

    async def retry(self, job_id: str) -> Pushed | None:
        """Move the record back to its queue in one step: same id and envelope (due now), attempts 0.

        None when there is no such record (any more). While another job holds its unique key the record stays
        and the answer has the holder. Bytes that cannot be decoded are pushed as they are.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a job ended, as far as the store still knows ("unknown": not at all).

    error: the history's; of a done job whose result is here it does not matter.
    """

    state: Literal["done", "failed", "cancelled", "unknown"]
    result: bytes | None = None
    error: str = ""


class Results(Protocol):
    """Return values, kept for a while."""

    async def wait(self, job_id: str, timeout: float) -> Ended | None:
        """How the job ended, at once if it has; None when `timeout` seconds passed first."""
        ...


JobState: TypeAlias = Literal["delayed", "ready", "leased", "paused", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as the store shows it to people. Times are epoch seconds."""

    id: str
    queue: str
    name: str
    state: JobState
    attempt: int = 0
    releases: int = 0
    reclaims: int = 0
    run_at: float = 0.0
    lease_until: float | None = None
    envelope: Envelope | Unreadable | None = None
    error: str = ""


class Cancel(Enum):
    """The answer to a cancel that did not hand the job to the caller."""

    ASKED = "asked"
    """It runs; its worker hears of it with its next renewal."""
    ENDED = "ended"
    UNKNOWN = "unknown"


class Jobs(Protocol):
    """Looking at and controlling single jobs and queues."""

    async def get(self, job_id: str) -> JobView | None:
        """Live, failed or finished."""
        ...

    async def list(
        self, *, queue: str | None = None, state: JobState | None = None, cursor: str = "", limit: int = 50
    ) -> tuple[Sequence[JobView], str]:
        """Live jobs, and the cursor of the next page ("" at the end)."""
        ...

    async def cancel(self, job_id: str, *, token: str, lease: float) -> Claim | Cancel:
        """A queued job is handed to the caller with `Ending.CANCELLED`, to be settled at once."""
        ...

    async def pause(self, job_id: str) -> bool:
        """A queued job is not claimed until `resume`; it keeps its unique slot."""
        ...

    async def resume(self, job_id: str) -> bool: ...

    async def pause_queue(self, queue: str) -> bool:
        """No worker claims from the queue until `resume_queue`; pushes go on."""
        ...

    async def resume_queue(self, queue: str) -> bool: ...

    async def paused_queues(self) -> Sequence[str]: ...

    async def holders(self, name: str, overlap_key: str) -> Sequence[str]:
        """Ids of the running jobs that hold that overlap key."""
        ...

    async def unique_holder(self, name: str, key: str) -> str | None:
        """Id of the job in the unique slot of (name, key)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """A schedule as stored: its last fired tick and what was said of it. Times are epoch seconds."""

    name: str
    last_tick: float | None = None
    paused: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)


class Schedules(Protocol):
    """Ticks that fire once, whatever the number of schedulers."""

    async def register(self, name: str, spec: Mapping[str, Any]) -> ScheduleState:
        """Store the description and return the state. A new schedule starts with last_tick = the store's now."""
        ...

    async def fire(self, name: str, tick: float, envelope: Envelope) -> Pushed | None:
        """Move last_tick forward to `tick` and push, in one step; None when it is not later, or paused."""
        ...

    async def list(self) -> Sequence[ScheduleState]: ...

    async def pause(self, name: str, paused: bool) -> bool:
        """False for an unknown schedule. Resuming moves last_tick to now, so that nothing is caught up."""
        ...

    async def forget(self, name: str) -> bool: ...

    async def now(self) -> float:
        """The store's clock."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What a worker says of itself every 5 s. counters: processed, failed, … since it started, per queue."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    started_at: float
    version: str = ""
    running: Mapping[str, Any] = field(default_factory=dict)
    """Job id -> {name, queue, attempt, elapsed, progress}."""
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """Job names that it can run."""
    loop_lag: float = 0.0
    seen_at: float = 0.0


class Workers(Protocol):
    """Who is at work."""

    async def report(self, report: WorkerReport) -> None: ...

    async def leave(self, worker_id: str) -> None: ...

    async def list(self, *, max_age: float = 30.0) -> Sequence[WorkerReport]: ...

    async def totals(self) -> Mapping[str, Mapping[str, int]]:
        """Per queue, the counters of all workers that ever reported (and of those now gone)."""
        ...


class History(Protocol):
    """Jobs that ended, newest first: at most 10,000 or 24 h of them by default."""

    async def push(self, rows: Sequence[HistoryRow]) -> None:
        """Upsert by id, for jobs that travelled through another driver."""
        ...

    async def page(
        self, *, cursor: str = "", limit: int = 50, state: str | None = None, queue: str | None = None
    ) -> tuple[Sequence[HistoryRow], str]: ...

    async def keep_result(self, job_id: str, result: bytes, ttl: float) -> None:
        """Upsert by id, for jobs that travelled through another driver."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """What a backend backs besides the queue itself; None where it cannot."""

    locker: Locker | None = None
    batches: BatchStore | None = None
    limiter: JobLimiter | None = None
    failed: FailedStore | None = None
    results: Results | None = None
    jobs: Jobs | None = None
    schedules: Schedules | None = None
    workers: Workers | None = None
    history: History | None = None
