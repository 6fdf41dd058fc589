"""The statements of a busy worker, run with nothing to do while it is idle.

A connection looks up the types of a statement's lists and plans it when it first runs it, which takes up to 15 ms,
and is made in 5 ms. Without a rehearsal the jobs pay for that whose claim, settlement and report first meet.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from nimbusq.driver import Want
from nimbusq.errors import StoreError
from nimbusq_database import ends, plain
from nimbusq_database.database import Database
from nimbusq_database.transaction import Transaction

_CONNECTIONS: Final = 3
"""A claim's, a settlement's, and one for what comes beside them."""
_LIMIT: Final = 1.0
"""Seconds that it may keep a claim from waiting."""
_NOTHING: Final = Want(token="", limit=0, lease=1.0, wait=1.0, lanes=())


@dataclass(slots=True)
class Rehearsal:
    """Of one adapter, from each time that it is opened; where a statement costs a round trip (`Dialect.single`)."""

    database: Database
    due: bool = True

    async def in_passing(self) -> None:
        """Do it if it has not been done. Never raises for the store's sake: whoever claims next hears of it."""
        if not (self.due and self.database.dialect.single):
            return
        self.due = False
        async with asyncio.TaskGroup() as connections:
            for _ in range(_CONNECTIONS):
                connections.create_task(self._run())

    async def _run(self) -> None:
        """On a connection of its own, since the others are in use at the same time."""
        with suppress(StoreError):
            await self.database.single(_all, limit=_LIMIT)


async def _all(tx: Transaction) -> None:
    await plain.claim(tx, _NOTHING)
    await ends.end(tx, [])
    await ends.end_and_claim(tx, [], _NOTHING)
    await tx.fetch("due", queues=[])
