"""Jobs that failed for good, until somebody retries or forgets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from nimbusq.driver import FailedRecord, FailureGroup, Pushed
from nimbusq_database.client import Row
from nimbusq_database.database import Database
from nimbusq_database.job_row import raw_columns
from nimbusq_database.paging import LAST, cut, number
from nimbusq_database.push import push_jobs
from nimbusq_database.settle import failed_columns
from nimbusq_database.transaction import Transaction


class DatabaseFailedStore:
    """`nimbusq.driver.FailedStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def push(self, record: FailedRecord) -> None:
        async def body(tx: Transaction) -> None:
            await tx.insert("failed_push", [failed_columns(record)])

        await self._database.transact(body)

    async def get(self, job_id: str) -> FailedRecord | None:
        async def body(tx: Transaction) -> FailedRecord | None:
            row = await tx.one("failed_get", id=job_id)
            return _record(row) if row else None

        return await self._database.read(body)

    async def page(
        self, *, cursor: str = "", limit: int = 50, queue: str | None = None, fingerprint: str | None = None
    ) -> tuple[Sequence[FailedRecord], str]:
        async def body(tx: Transaction) -> tuple[Sequence[FailedRecord], str]:
            before = number(cursor, LAST)
            rows = await tx.fetch(
                "failed_page", before=before, limit=limit + 1, queue=queue, fingerprint=fingerprint
            )
            page, following = cut(rows, limit)
            return [_record(row) for row in page], following

        return await self._database.read(body)

    async def count(self, *, queue: str | None = None) -> int:
        async def body(tx: Transaction) -> int:
            row = await tx.one("failed_count", queue=queue)
            return int(row["count"]) if row else 0

        return await self._database.read(body)

    async def groups(self, *, limit: int = 50) -> Sequence[FailureGroup]:
        """The greatest groups first."""

        async def body(tx: Transaction) -> Sequence[FailureGroup]:
            names = [one.name for one in fields(FailureGroup)]
            rows = await tx.fetch("failed_groups", limit=limit)
            return [FailureGroup(**{name: row[name] for name in names}) for row in rows]

        return await self._database.read(body)

    async def forget(self, job_id: str) -> bool:
        async def body(tx: Transaction) -> bool:
            return bool(await tx.execute("failed_forget", id=job_id))

        return await self._database.transact(body)

    async def forget_all(self, *, queue: str | None = None, older_than: float | None = None) -> int:
        """`older_than`: only records of at least that age, in seconds."""

        async def body(tx: Transaction) -> int:
            return await tx.execute("failed_forget_all", queue=queue, age=older_than or 0.0)

        return await self._database.transact(body)

    async def retry(self, job_id: str) -> Pushed | None:
        async def body(tx: Transaction) -> Pushed | None:
            row = await tx.one("failed_lock", id=job_id)
            if row is None:
                return None
            job = raw_columns(bytes(row["wire"]), row["id"], row["queue"], row["name"], row["max_attempts"])
            (pushed,) = await push_jobs(tx, [job])
            if pushed.holder is None:
                await tx.execute("failed_forget", id=job_id)
            return pushed

        return await self._database.transact(body)


def _record(row: Row) -> FailedRecord:
    values = {one.name: row[one.name] for one in fields(FailedRecord)}
    return FailedRecord(**values | {"wire": bytes(row["wire"])})
