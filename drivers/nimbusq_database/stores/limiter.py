"""Rates for the whole fleet, on the store's clock."""

from __future__ import annotations

from nimbusq.driver import Reserved
from nimbusq.envelope import Rate
from nimbusq_database.database import Database
from nimbusq_database.rates import Rates
from nimbusq_database.transaction import Transaction


class DatabaseLimiter:
    """`nimbusq.driver.JobLimiter`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, rate: Rate, n: int = 1) -> Reserved:
        async def body(tx: Transaction) -> Reserved:
            rates = Rates()
            await rates.lock(tx, [rate])
            granted = min(n, rates.allowed(rate))
            rates.spend(rate, granted)
            await rates.write(tx)
            return Reserved(granted, 0.0 if granted == n else rates.retry_after(rate))

        return await self._database.transact(body)

    async def give_back(self, rate: Rate, n: float = 1) -> None:
        async def body(tx: Transaction) -> None:
            rates = Rates()
            await rates.lock(tx, [rate])
            rates.spend(rate, -n)
            await rates.write(tx)

        await self._database.transact(body)
