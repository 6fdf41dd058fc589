"""One job as the memory holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nimbusq.driver import Claim, Ending
from nimbusq.envelope import Envelope, Unreadable

if TYPE_CHECKING:
    from nimbusq_sync.agenda import Agenda


@dataclass(slots=True, eq=False, kw_only=True)
class Row:
    """The mutable state of a job, changed only under the state's lock.

    header: the part of the envelope that ends a job; of unreadable bytes what could be saved, else defaults.
    number: the order of arrival. unique, overlap: the digests of its keys.
    token, claim: set exactly while the job is leased. ending: once it must not run any more.
    agenda, ticket: where it stands in line (see `Agenda`); nowhere while it is paused.
    blocks: times its overlap key put it back; they are a part of `releases`.
    put_back_by: the token of the retry or release that put it back, to know a repeated one.
    """

    id: str
    queue: str
    envelope: Envelope | Unreadable
    header: Envelope
    number: int
    run_at: float
    expires_at: float
    unique: str | None
    overlap: str | None
    attempt: int = 0
    releases: int = 0
    blocks: int = 0
    reclaims: int = 0
    fence: int = 0
    token: str | None = None
    claim: Claim | None = None
    ending: Ending | None = None
    lease_until: float = 0.0
    renewed_at: float = 0.0
    paused: bool = False
    cancel_asked: bool = False
    put_back_by: str | None = None
    error: str = ""
    ticket: int = 0
    agenda: Agenda | None = field(default=None, repr=False)
