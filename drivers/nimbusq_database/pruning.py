"""Care once a minute, in passing, by whichever worker settles; no leader is needed."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from nimbusq.driver import DriverSettings
from nimbusq.errors import StoreError
from nimbusq_database.database import Database
from nimbusq_database.stores.workers import forget_silent
from nimbusq_database.transaction import Transaction

_EVERY: Final = 60.0
_BATCHES_KEPT: Final = 7 * 86_400.0
_RATES_KEPT: Final = 3_600.0
_MOST_BATCHES: Final = 50
_log = logging.getLogger("nimbusq.database")


@dataclass(slots=True)
class Pruning:
    """Drops old records of a database, and says what slows it. next_at: on this process's monotonic clock."""

    database: Database
    next_at: float = 0.0

    async def in_passing(self) -> None:
        """Do it if a minute has passed. Never raises for the store's sake: it is done again in a minute."""
        if not self._due():
            return

        async def body(tx: Transaction) -> None:
            await prune(tx, self.database.settings)

        try:
            await self.database.transact(body)
            if hindrance := await self.database.dialect.hindrance():
                _log.warning("claims slow down: %s", hindrance)
        except StoreError as error:
            _log.warning("old records stay for another minute: %s", error)

    def _due(self) -> bool:
        now = time.monotonic()
        if now < self.next_at:
            return False
        first, self.next_at = not self.next_at, now + _EVERY
        return not first


async def prune(tx: Transaction, settings: DriverSettings) -> None:
    """Drop what has outlived its time. Batches are kept for 7 days after their last update."""
    await tx.execute("prune_history", keep=settings.history_limit, age=settings.history_ttl)
    await tx.execute("prune_results")
    await tx.execute("prune_locks")
    await tx.execute("prune_rates", age=_RATES_KEPT)
    await forget_silent(tx)
    stale = [row["id"] for row in await tx.fetch("batches_stale", age=_BATCHES_KEPT, limit=_MOST_BATCHES)]
    if stale:
        await tx.execute("members_forget", ids=stale)
        await tx.execute("batches_forget", ids=stale)
