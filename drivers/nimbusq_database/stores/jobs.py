"""Looking at single jobs, and cancelling and pausing them and queues."""

from __future__ import annotations

from collections.abc import Sequence

from nimbusq.driver import Cancel, Claim, Ending, JobState, JobView
from nimbusq.envelope import decode, digest
from nimbusq_database.client import Row
from nimbusq_database.database import Database
from nimbusq_database.job_row import stored_ending, to_claim
from nimbusq_database.paging import cut, number
from nimbusq_database.reclaim import hand_out
from nimbusq_database.stores.results import ended
from nimbusq_database.transaction import Transaction


class DatabaseJobs:
    """`nimbusq.driver.Jobs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, job_id: str) -> JobView | None:
        async def body(tx: Transaction) -> JobView | None:
            if row := await tx.one("job_get", id=job_id):
                return _view(row)
            if row := await tx.one("failed_get", id=job_id):
                return _failed_view(row)
            row = await tx.one("history_get", id=job_id)
            return _history_view(row) if row else None

        return await self._database.read(body)

    async def list(
        self, *, queue: str | None = None, state: JobState | None = None, cursor: str = "", limit: int = 50
    ) -> tuple[Sequence[JobView], str]:
        """In the order of arrival."""

        async def body(tx: Transaction) -> tuple[Sequence[JobView], str]:
            after = number(cursor, 0)
            rows = await tx.fetch("jobs_page", after=after, limit=limit + 1, queue=queue, state=state)
            page, following = cut(rows, limit)
            return [_view(row) for row in page], following

        return await self._database.read(body)

    async def cancel(self, job_id: str, *, token: str, lease: float) -> Claim | Cancel:
        async def body(tx: Transaction) -> Claim | Cancel:
            row = await tx.one("job_lock", id=job_id)
            if row is None:
                found = await ended(tx, job_id)
                return Cancel.UNKNOWN if found is None or found.state == "unknown" else Cancel.ENDED
            if row["token"] == token:
                return to_claim(row, token, ending=stored_ending(row), taken=False)
            if row["token"] is not None:
                await tx.execute("job_ask_cancel", id=job_id)
                return Cancel.ASKED
            (claim,) = await hand_out(tx, token, lease, [(row, Ending.CANCELLED)])
            return claim

        return await self._database.transact(body)

    async def pause(self, job_id: str) -> bool:
        async def body(tx: Transaction) -> bool:
            row = await tx.one("job_lock", id=job_id)
            if row is None or row["state"] == "leased":
                return False
            await tx.execute("job_pause", id=job_id)
            return True

        return await self._database.transact(body)

    async def resume(self, job_id: str) -> bool:
        async def body(tx: Transaction) -> bool:
            row = await tx.one("job_lock", id=job_id)
            if row is None or row["state"] != "paused":
                return False
            await tx.execute("job_resume", id=job_id)
            tx.topics.add(row["queue"])
            return True

        return await self._database.transact(body)

    async def pause_queue(self, queue: str) -> bool:
        async def body(tx: Transaction) -> bool:
            return bool(await tx.execute("queue_pause", queue=queue))

        return await self._database.transact(body)

    async def resume_queue(self, queue: str) -> bool:
        async def body(tx: Transaction) -> bool:
            tx.topics.add(queue)
            return bool(await tx.execute("queue_resume", queue=queue))

        return await self._database.transact(body)

    async def paused_queues(self) -> Sequence[str]:
        async def body(tx: Transaction) -> Sequence[str]:
            return [row["queue"] for row in await tx.fetch("queues_paused")]

        return await self._database.read(body)

    async def holders(self, name: str, overlap_key: str) -> Sequence[str]:
        async def body(tx: Transaction) -> Sequence[str]:
            rows = await tx.fetch("overlap_holders", digest=digest(name, overlap_key))
            return sorted(row["id"] for row in rows)

        return await self._database.read(body)

    async def unique_holder(self, name: str, key: str) -> str | None:
        async def body(tx: Transaction) -> str | None:
            row = await tx.one("slot_holders", digests=[digest(name, key)])
            return row["id"] if row else None

        return await self._database.read(body)


def _view(row: Row) -> JobView:
    state: JobState = row["state"]
    if row["state"] == "queued":
        state = "delayed" if row["run_at"] > row["now"] else "ready"
    return JobView(
        id=row["id"],
        queue=row["queue"],
        name=row["name"],
        state=state,
        attempt=row["attempts"],
        releases=row["releases"],
        reclaims=row["reclaims"],
        run_at=row["run_at"],
        lease_until=row["lease_until"],
        envelope=decode(bytes(row["wire"])),
        error=row["error"],
    )


def _failed_view(row: Row) -> JobView:
    return JobView(
        id=row["id"],
        queue=row["queue"],
        name=row["name"],
        state="failed",
        attempt=row["attempts"],
        envelope=decode(bytes(row["wire"])),
        error=row["error"],
    )


def _history_view(row: Row) -> JobView:
    return JobView(
        id=row["id"],
        queue=row["queue"],
        name=row["name"],
        state=row["state"],
        attempt=row["attempt"],
        error=row["error"],
    )
