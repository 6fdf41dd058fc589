"""Jobs that ended, newest first."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nimbusq.driver import HistoryRow
from nimbusq_database.client import Row
from nimbusq_database.database import Database
from nimbusq_database.paging import LAST, cut, number
from nimbusq_database.settle import history_columns
from nimbusq_database.transaction import Transaction


class DatabaseHistory:
    """`nimbusq.driver.History`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def push(self, rows: Sequence[HistoryRow]) -> None:
        async def body(tx: Transaction) -> None:
            await tx.execute("history_push", rows=[history_columns(row) for row in rows])
            tx.topics.update(f"job:{row.id}" for row in rows)

        if rows:
            await self._database.transact(body)

    async def page(
        self, *, cursor: str = "", limit: int = 50, state: str | None = None, queue: str | None = None
    ) -> tuple[Sequence[HistoryRow], str]:
        async def body(tx: Transaction) -> tuple[Sequence[HistoryRow], str]:
            before, age = number(cursor, LAST), self._database.settings.history_ttl
            rows = await tx.fetch(
                "history_page", before=before, limit=limit + 1, age=age, state=state, queue=queue
            )
            page, following = cut(rows, limit)
            return [_row(row) for row in page], following

        return await self._database.read(body)

    async def keep_result(self, job_id: str, result: bytes, ttl: float) -> None:
        async def body(tx: Transaction) -> None:
            await tx.insert("results_push", [{"id": job_id, "result": result, "ttl": ttl}])
            tx.topics.add(f"job:{job_id}")

        await self._database.transact(body)


def _row(row: Row) -> HistoryRow:
    values = {name: row[name] for name in HistoryRow._fields}
    return HistoryRow(**values | {"tags": tuple(json.loads(row["tags"])), "silenced": bool(row["silenced"])})
