"""The seam: what a driver supplies.

A driver is an `Adapter` (five verbs, a life cycle, a capability record) and the `Stores` that its backend can
back. Verbs are batched: one round trip carries many jobs. Core does everything else once, for all drivers:
retry policy, metrics, logging, hooks, chains and batches. A driver holds none of these.

The states of a job::

    push ──▶ delayed ──▶ ready ──▶ leased ──▶ done | failed | cancelled
                ▲          ▲         │
                └──────────┴─────────┘  retry, release, lost lease          (paused leaves by resume)

Every transition is ONE atomic step in the store and carries its guard:

=========  ===========================================  =======================================================
step       guard                                        effect, all or nothing
=========  ===========================================  =======================================================
push       id unknown; unique key free                  job written, unique key -> id
claim      ready, or delayed and due                    token written, attempt + 1, lease until server now + lease
reclaim    lease expired (part of every claim)          token cleared, back to ready; or ended, see `Ending`
extend     the job's token is the claim's               lease until max(old, server now + lease)
settle     the job's token is the claim's               terminal: the job leaves, its slot is freed, the batch
                                                        recorded, follow-ups pushed, records written;
                                                        retry or release: token cleared, due again after the delay
=========  ===========================================  =======================================================

Why this is right: only claim writes a token, only settle and expiry clear it, and a job has one token field, so
at every moment it has at most one holder, without any clock. `settle` succeeds only for the holder, so a claim
has at most one successful settlement, and after a terminal one the job has no token and is never ready again:
at most one terminal outcome. A job leaves the store only by a terminal settlement, and every other state has a
transition that any worker's next claim performs when it is due: nothing is lost and nothing waits for a leader.
Clocks decide only *when* a lease expires. The attempt is counted in the step that writes the token, so starts
stay within max_attempts (plus releases) whatever crashes.

All clocks are the store's own; callers send durations in seconds. Every mutating call may be executed twice
without harm (its reply may have been lost): push by the job's id, claim by `Want.token`, settle by the claim's
token. Third parties write drivers against these protocols, register them under the entry-point group
``nimbusq.drivers`` and prove them with `nimbusq.testing.suite`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol, Self, TypeAlias

from nimbusq.envelope import Envelope, Rate, Unreadable

# --- capabilities ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a driver can do, as data. None for a limit means that there is none."""

    driver: str
    """The name that messages and the driver table use."""
    durable: bool
    """Jobs survive the end of this process."""
    lease: Literal["timed", "session", "none"]
    """timed: `extend` renews it. session: the driver keeps it alive by itself. none: claims never expire."""
    fenced: bool
    """A claim that was lost cannot settle."""
    atomic: bool
    """Unique slots, overlap keys, per-key rates, batches and chains move in one step with push, claim and settle."""
    transactional: bool
    """`push` and `settle` accept the application's transaction."""
    priorities: bool
    """Priority 1 (first) to 10, then arrival order."""
    cancellable: bool
    """A queued job can be cancelled by its id."""
    max_delay: float | None
    """Greatest delay in seconds that is kept exactly."""
    max_lease: float | None
    """Longest run in seconds that can be kept leased."""
    max_body: int | None
    """Greatest wire size of a job in bytes."""
    inline: bool = False
    """`send()` runs the job in the sender's process before it returns."""


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a dispatch asks for beyond a plain job, and what to do where a driver lacks it."""

    name: str
    remedy: str


_STORE_REMEDY = (
    "Set QUEUE_STORE_URL (or Manager(..., store=...)) to a redis or database URL, or use such a driver."
)


def lacking(envelope: Envelope, capabilities: Capabilities, *, tx: bool = False) -> tuple[Need, ...]:
    """The needs of this dispatch that the driver cannot meet; the one place where they are compared.

    Every need is then met natively (nothing is returned for it), via the store beside the driver, or refused.
    """
    c = capabilities
    if c.atomic and c.priorities and c.max_delay is None and (c.transactional or not tx):
        return ()
    atomic = {
        "unique jobs": envelope.unique is not None,
        "jobs without overlap": envelope.overlap is not None,
        "rates per key": envelope.rate is not None,
        "batches": envelope.batch_id is not None,
        "chains": envelope.chain is not None,
    }
    needs = [Need(name, _STORE_REMEDY) for name, asked in atomic.items() if asked and not c.atomic]
    if envelope.priority != 5 and not c.priorities:
        needs.append(
            Need("priorities", "Use one queue per urgency, listed in order of preference. " + _STORE_REMEDY)
        )
    if c.max_delay is not None and envelope.delay > c.max_delay:
        needs.append(Need(f"delays above {c.max_delay:g} s", _STORE_REMEDY))
    if tx and not c.transactional:
        needs.append(Need("dispatch in a transaction", "Send after the commit, or use the database driver."))
    return tuple(needs)


# --- push --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pushed:
    """The answer to one pushed envelope. `holder` is set when another active job holds its unique key."""

    id: str
    holder: str | None = None


# --- claim -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One queue of a claim: take at most `limit` jobs of it, at `rate` (counted under the rate's key)."""

    queue: str
    limit: int
    rate: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What a worker asks for.

    token: 128 random bits or a worker's nonce and a counter, made by the caller, never reused. The claims of
        this call carry it. The same call again (its reply was lost) answers the same claims.
    limit: free slots over all lanes; 0 only collects lost leases.
    lease: seconds.
    wait: how long the call may block while nothing is due, in seconds. Cancelling it while it waits loses nothing.
    lanes: queues in order of preference.
    """

    token: str
    limit: int
    lease: float
    wait: float = 0.0
    lanes: tuple[Lane, ...]


class Ending(Enum):
    """Why a claimed job must not run but be settled at once."""

    LOST = "lost"
    """Its last allowed run ended with its worker."""
    EXPIRED = "expired"
    """`expires_in` passed before it could start."""
    CANCELLED = "cancelled"
    """A cancel was asked for, of the job or of its batch."""
    BLOCKED = "blocked"
    """It was put back by its overlap key more often than `max_releases` allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One job in this caller's hands until its lease ends.

    attempt: 1 on the first run. releases: times it was put back. fence: rises with every claim of the job.
    run_at: when it was due, in seconds since the epoch on the store's clock; waited: seconds from then to now.
    receipt: whatever the driver needs to find the job again. reclaimed: an earlier run of it was lost.
    ending: None for a job to run. Otherwise the job takes no slot, no attempt was counted for this claim, and
    the caller settles it as failed or cancelled at once; should the caller die, another one is handed it.
    """

    id: str
    queue: str
    envelope: Envelope | Unreadable
    attempt: int
    token: str
    releases: int = 0
    fence: int = 0
    run_at: float = 0.0
    waited: float = 0.0
    reclaimed: bool = False
    ending: Ending | None = None
    receipt: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A lease that this call took back; the job is ready again, or among the claims with an ending."""

    id: str
    queue: str
    envelope: Envelope | Unreadable
    attempt: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """claims: at most `Want.limit` to run, besides those with an ending (at most 50). lost: see `Lost`.

    retry_after: seconds until a rate lets the next job through, when a rate is all that holds one back.
    """

    claims: Sequence[Claim] = ()
    lost: Sequence[Lost] = ()
    retry_after: float | None = None


class Renewal(Enum):
    """The answer to one extended claim."""

    RENEWED = "renewed"
    LOST = "lost"
    CANCEL = "cancel"
    """Renewed, and somebody asked to cancel the run."""


# --- settle ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """The job did what it should. `result` is the encoded return value; None is not kept.

    note: why a value that there was is not kept; for the history.
    """

    result: bytes | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Retry:
    """The run failed; again after `delay` seconds. The attempt stays counted."""

    delay: float
    error: str


@dataclass(frozen=True, slots=True)
class PutBack:
    """Again after `delay` seconds; the attempt is given back, the release counted."""

    delay: float
    counted: bool = True
    """False for a job that is handed back unrun (shutdown, unwanted claim): not even a release is counted."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The job failed for good."""

    error: str
    kind: str = "Exception"
    """The error's class name."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job was cancelled, or expired."""

    reason: str


Outcome: TypeAlias = Done | Retry | PutBack | Failed | Cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """`member` of `batch_id` has ended. `error` is kept (the first 50 of a batch) where it failed."""

    batch_id: str
    member: str
    failed: bool
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRecord:
    """A job that failed for good, as stored; failed_at is set by the store (epoch seconds)."""

    id: str
    queue: str
    name: str
    wire: bytes
    error: str
    kind: str
    traceback: str = ""
    fingerprint: str = ""
    """Equal for failures of one cause: job name, error class and the innermost frame of the application."""
    attempts: int = 0
    max_attempts: int = 1
    failed_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """A job that ended; finished_at is set by the store (epoch seconds), durations are seconds.

    error: what went wrong; of a done job, why its result will not be found (any more).
    """

    id: str
    queue: str
    name: str
    state: Literal["done", "failed", "cancelled"]
    attempt: int
    waited: float = 0.0
    duration: float = 0.0
    error: str = ""
    worker: str = ""
    tags: tuple[str, ...] = ()
    silenced: bool = False
    finished_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A claim's outcome and all that follows from it, applied in one step or not at all.

    push: envelopes of a chain's next link, of callbacks. record: the batch's count. failed, history: records.
    The result of a `Done` is kept for `result_ttl` seconds. The unique key and the overlap key are freed by the
    driver when the outcome is terminal (done, failed, cancelled).
    """

    claim: Claim
    outcome: Outcome
    push: tuple[Envelope, ...] = ()
    record: BatchRecord | None = None
    failed: FailedRecord | None = None
    history: HistoryRow | None = None
    result_ttl: float = 3600.0

    @property
    def terminal(self) -> bool:
        """The job leaves the store with this settlement."""
        return isinstance(self.outcome, Done | Failed | Cancelled)


class SettleStatus(Enum):
    """The answer to one settlement."""

    SETTLED = "settled"
    """This call ended or put back the job."""
    ALREADY = "already"
    """The same settlement was applied before (its reply was lost). A driver that cannot tell answers LOST."""
    LOST = "lost"
    """The claim's token is not the job's any more: nothing was changed."""


@dataclass(frozen=True, slots=True)
class Settled:
    """status, and the batch's update where the settlement recorded into one."""

    status: SettleStatus
    batch: BatchUpdate | None = None


# --- batches -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A batch to create, open. Callbacks are whole envelopes, pushed by the step that ends the batch.

    `catch` is a template: core pushes a copy of it for each failed member, with that member's settlement.
    """

    id: str
    name: str = ""
    then: Envelope | None = None
    catch: Envelope | None = None
    finally_: Envelope | None = None
    cancel_on_failure: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """A batch's stored progress. Times are epoch seconds of the store's clock.

    total counts added members; pending those that have not ended; failed those that failed, were cancelled or
    expired. errors: the first 50. sealed: no more members come from its producer. A batch that was left open
    is shown as incomplete.
    """

    id: str
    name: str
    total: int
    pending: int
    failed: int
    errors: tuple[str, ...] = ()
    sealed: bool = False
    cancelled: bool = False
    cancel_on_failure: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    finished_at: float | None = None
    catch: Envelope | None = field(default=None, repr=False, compare=False)

    @property
    def processed(self) -> int:
        """Members that have ended."""
        return self.total - self.pending

    @property
    def progress(self) -> float:
        """From 0.0 to 1.0."""
        return self.processed / self.total if self.total else float(self.finished_at is not None)

    @property
    def finished(self) -> bool:
        """All members have ended and the batch is sealed."""
        return self.finished_at is not None


@dataclass(frozen=True, slots=True)
class BatchUpdate:
    """counted: False when this member was recorded before. finished: True for exactly one caller."""

    state: BatchState
    counted: bool = True
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Added:
    """The batch's mark (members added by its producer so far), and the answers to the pushed envelopes."""

    mark: int
    pushed: Sequence[Pushed] = ()


class BatchStore(Protocol):
    """Progress of batches: a set of pending members, so that recording one twice changes nothing.

    A record is kept for 7 days after its last update.
    """

    async def create(self, batch: NewBatch) -> None:
        """Store the batch, open. The same id again changes nothing."""
        ...

    async def add(self, batch_id: str, envelopes: Sequence[Envelope], *, offset: int | None = None) -> Added:
        """Push members and add them to the pending set, in one step.

        `offset` is how many members the producer has added before; below the stored mark nothing is added and
        the mark is returned, so that a producer whose reply was lost can continue. None adds from inside a job:
        members that the batch has or had are left alone. Raises BatchNotFound, and InvalidOption where the
        batch has finished or is sealed against its producer.
        """
        ...

    async def seal(self, batch_id: str) -> BatchUpdate:
        """No more members come from the producer; a batch with none pending finishes here."""
        ...

    async def record(self, record: BatchRecord) -> BatchUpdate:
        """Count one member by hand, outside a settlement; the last one of a sealed batch finishes it."""
        ...

    async def cancel(self, batch_id: str) -> BatchUpdate:
        """Mark as cancelled: members that have not started are handed out with `Ending.CANCELLED`."""
        ...

    async def find(self, batch_id: str) -> BatchState | None: ...

    async def members(
        self, batch_id: str, *, cursor: str = "", limit: int = 500
    ) -> tuple[Sequence[str], str]:
        """Pending member ids, and the cursor of the next page ("" at the end)."""
        ...

    async def list(self, *, cursor: str = "", limit: int = 50) -> tuple[Sequence[BatchState], str]:
        """Newest first, and the cursor of the next page ("" at the end)."""
        ...


# --- the other stores --------------------------------------------------------------------------------------


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

    async def give_back(self, rate: Rate, n: int = 1) -> None: ...


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


# --- the adapter -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """Jobs of one queue by state; None where the backend cannot tell. oldest: seconds the first due job waits."""

    queue: str
    pending: int | None
    delayed: int | None
    running: int | None
    oldest: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `nimbusq doctor`."""

    level: Literal["ok", "warning", "error"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """What the manager tells every driver that it builds from a URL. Durations are seconds."""

    prefix: str = "nimbusq"
    """Isolates everything that one program stores. Grammar: ``[a-z][a-z0-9_]{0,31}``."""
    history_limit: int = 10_000
    history_ttl: float = 86_400.0
    testing: bool = False
    """Allows a test to move the store's clock and to audit every transition in the store."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of one driver, by its own names."""


class Adapter(Protocol):
    """A driver. Made by ``Class.from_url(url, settings)``, opened and closed by its manager.

    Every call has its own deadline. A backend that cannot be reached raises StoreUnavailable, one that is full
    StoreFull; the client library's error is the cause.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def stores(self) -> Stores: ...

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:
        """Raises ConfigError for a URL that it cannot use. Does not connect."""
        ...

    def clone(self) -> Self:
        """The same configuration, not connected: for another thread's event loop."""
        ...

    async def open(self) -> None:
        """Connect. Raises StoreUnavailable, or SchemaMismatch where `setup` is due."""
        ...

    async def aclose(self) -> None: ...

    async def setup(self, queues: Sequence[str]) -> None:
        """Create tables, topics, queues; `nimbusq migrate up`. Safe to run twice and at the same time."""
        ...

    async def push(self, envelopes: Sequence[Envelope], *, tx: object | None = None) -> Sequence[Pushed]:
        """Store jobs, all or none of them; answers in order. A known id changes nothing and answers as before.

        An envelope whose unique key is held is not stored, and answers with the holder. `tx` is the
        application's own transaction: the jobs appear with its commit. Raises DispatchUncertain where a lost
        reply leaves it open whether they are stored and a repetition could store them twice.
        """
        ...

    async def claim(self, want: Want) -> Claimed:
        """Take due jobs under a lease, lost leases first. See `Want`, `Claimed` and the table above.

        An overlap key is taken with the job; a blocked job is put back for its `release_after`, its release
        counted, no attempt. A lane's rate is spent for claimed jobs only.
        """
        ...

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:
        """Renew leases; answers in order. Rows that somebody else has locked count as renewed."""
        ...

    async def settle(
        self, settlements: Sequence[Settlement], *, tx: object | None = None
    ) -> Sequence[Settled]:
        """Apply each settlement atomically if its claim still holds the job; answers in order."""
        ...

    async def depth(self, queues: Sequence[str]) -> Sequence[Depth]: ...

    async def doctor(self) -> Sequence[Finding]:
        """Check the backend's version, durability and settings."""
        ...
