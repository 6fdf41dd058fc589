"""Who is at work, by their own reports."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from nimbusq.driver import WorkerReport
from nimbusq_database.client import Row
from nimbusq_database.database import Database
from nimbusq_database.transaction import Transaction

_FORGOTTEN_AFTER: Final = 86_400.0
"""Seconds of silence after which only a worker's counters are kept."""


class DatabaseWorkers:
    """`nimbusq.driver.Workers`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(self, report: WorkerReport) -> None:
        async def body(tx: Transaction) -> None:
            await tx.execute("worker_report", id=report.id, report=json.dumps(asdict(report)))

        await self._database.single(body)

    async def leave(self, worker_id: str) -> None:
        async def body(tx: Transaction) -> None:
            await forget(tx, await tx.fetch("workers_gone", id=worker_id, max_age=_FORGOTTEN_AFTER))

        await self._database.transact(body)

    async def list(self, *, max_age: float = 30.0) -> Sequence[WorkerReport]:
        async def body(tx: Transaction) -> Sequence[WorkerReport]:
            return [_report(row) for row in await tx.fetch("workers_list", max_age=max_age)]

        return await self._database.read(body)

    async def totals(self) -> Mapping[str, Mapping[str, int]]:
        async def body(tx: Transaction) -> Mapping[str, Mapping[str, int]]:
            sums = _sum(await tx.fetch("workers_list", max_age=_FORGOTTEN_AFTER * 2))
            for row in await tx.fetch("totals"):
                sums[row["queue"]][row["counter"]] += row["value"]
            return {queue: dict(counters) for queue, counters in sums.items()}

        return await self._database.read(body)


async def forget_silent(tx: Transaction) -> None:
    """Keep only the counters of workers that nobody has heard of for a day."""
    await forget(tx, await tx.fetch("workers_gone", id=None, max_age=_FORGOTTEN_AFTER))


async def forget(tx: Transaction, gone: Sequence[Row]) -> None:
    """Add the counters of workers to those of the gone, and drop their reports."""
    if not gone:
        return
    rows = [[queue, counter, n] for queue, counters in _sum(gone).items() for counter, n in counters.items()]
    if rows:
        await tx.execute("totals_add", rows=sorted(rows))
    await tx.execute("workers_forget", ids=[row["id"] for row in gone])


def _sum(rows: Sequence[Row]) -> defaultdict[str, Counter[str]]:
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for queue, counters in json.loads(row["report"])["counters"].items():
            sums[queue].update(counters)
    return sums


def _report(row: Row) -> WorkerReport:
    values = json.loads(row["report"])
    return WorkerReport(
        **values
        | {
            "queues": tuple(values["queues"]),
            "names": tuple(values["names"]),
            "seen_at": row["seen_at"],
        }
    )
