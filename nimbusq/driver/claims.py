"""Push and claim: what goes in, and what a worker is handed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from nimbusq.envelope import Envelope, Rate, Unreadable


class Pushed(NamedTuple):
    """The answer to one pushed envelope. `holder` is set when another active job holds its unique key."""

    id: str
    holder: str | None = None


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
    wait: how long the call may block while nothing is due, in seconds. Cancelling a call that
        may wait loses nothing; one that may not (0) is short, and must not be cancelled.
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


class Claim(NamedTuple):
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
