"""Settle: the outcome of a claim, and all that follows from it, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

from nimbusq.driver.batches import BatchRecord, BatchUpdate
from nimbusq.driver.claims import Claim
from nimbusq.envelope import Envelope


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


class HistoryRow(NamedTuple):
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


class Settlement(NamedTuple):
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


class Settled(NamedTuple):
    """status, and the batch's update where the settlement recorded into one."""

    status: SettleStatus
    batch: BatchUpdate | None = None
