"""What a dialect supplies: connections, transactions, and how to hear of other processes' changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, Self, TypeVar

from nimbusq.driver import Finding
from nimbusq_database.client import Work
from nimbusq_database.statements import Spelling
from nimbusq_database.transaction import Transaction

T = TypeVar("T")


class Dialect(Protocol):
    """One database system. Errors of its client come out as StoreUnavailable and StoreFull."""

    name: str
    spelling: Spelling
    creates: bool
    """A new, empty database gets its tables when it is opened."""
    single: bool
    """Each statement costs a round trip: verbs first try the single statement of a plain case (see `plain`)."""
    hopeful: bool
    """To insert rows that are new is quicker than to look for each first: large pushes expect theirs to be new, and
    are repeated the other way where that was wrong."""
    heard: Callable[[Collection[str]], None]
    """Called with what other processes announce; set by the dialect's owner."""

    def clone(self) -> Self:
        """The same configuration, not connected."""
        ...

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    async def transact(self, work: Work[T], *, limit: float) -> T:
        """Run `work` in a transaction of its own, within `limit` seconds; again after a deadlock."""
        ...

    async def run(self, work: Work[T], *, limit: float, brief: bool = False) -> T:
        """Run `work`, whose statements each stand for themselves. brief: it writes a few small rows, no more."""
        ...

    async def read(self, work: Work[T], *, limit: float) -> T:
        """Run `work`, which changes nothing."""
        ...

    async def exclusively(self, work: Work[T]) -> T:
        """Run `work` while no other process does the same: the migrations' lock."""
        ...

    async def change(self, rung: asyncio.Event, seconds: float) -> None:
        """Return when `rung` is set, when another process may have changed something, or after `seconds`."""
        ...

    def carried(self, queue: str) -> str | None:
        """What the next push to this queue should announce in its own statement; None where `announce` will."""
        ...

    def announce(self, topics: Collection[str]) -> None:
        """Tell other processes, if they can be told."""
        ...

    async def announce_within(self, tx: Transaction) -> None:
        """The same as a part of the application's transaction."""
        ...

    async def findings(self) -> Sequence[Finding]:
        """What `nimbusq doctor` says of the server and its settings."""
        ...

    async def hindrance(self) -> str | None:
        """What slows every claim at this moment, if the server shows that; asked once a minute."""
        ...
