"""How jobs ended: told at once, or when they do."""

from __future__ import annotations

import asyncio
from typing import Final

from nimbusq.driver import Ended
from nimbusq_database.database import Database
from nimbusq_database.transaction import Transaction

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.25
"""Seconds between two looks at a job that another process may end; nobody announces each job's end."""


class DatabaseResults:
    """`nimbusq.driver.Results`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def wait(self, job_id: str, timeout: float) -> Ended | None:
        database = self._database
        clock = asyncio.get_running_loop().time
        deadline, pause = clock() + timeout, _FIRST_PAUSE

        async def body(tx: Transaction) -> Ended | None:
            return await ended(tx, job_id)

        with database.bell.listening([f"job:{job_id}"]) as rung:
            while True:
                rung.clear()
                if found := await database.read(body):
                    return found
                remaining = deadline - clock()
                if remaining <= 0:
                    return None
                await database.dialect.change(rung, min(remaining, pause))
                pause = min(pause * 1.5, _LONGEST_PAUSE)


async def ended(tx: Transaction, job_id: str) -> Ended | None:
    """How the job ended, as far as the store still knows; None while it lives."""
    row = await tx.one("ended", id=job_id)
    if row is None or row["live"]:
        return None
    if row["result"] is not None:
        return Ended(state="done", result=bytes(row["result"]))
    if row["failed_error"] is not None:
        return Ended(state="failed", error=row["failed_error"])
    if row["state"] is not None:
        return Ended(state=row["state"], error=row["error"])
    return Ended(state="unknown")
