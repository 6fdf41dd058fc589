"""The adapter: five verbs and a life cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from nimbusq.driver.capabilities import Capabilities
from nimbusq.driver.claims import Claim, Claimed, Pushed, Renewal, Want
from nimbusq.driver.settlements import Settled, Settlement
from nimbusq.driver.stores import Stores
from nimbusq.envelope import Envelope


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
