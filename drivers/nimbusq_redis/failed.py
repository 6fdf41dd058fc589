"""Jobs that failed for good, until somebody retries or forgets them (see lua/lib/records.lua)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nimbusq.driver import FailedRecord, FailureGroup, Pushed
from nimbusq_redis.cursors import check_cursor
from nimbusq_redis.link import Link
from nimbusq_redis.pushes import push_again
from nimbusq_redis.records import failed_text, read_failed
from nimbusq_redis.refs import ref, unref

_PORTION: Final = 500
"""Records that one call forgets, so that it does not keep the server from others for long."""


class RedisFailedStore:
    """`nimbusq.driver.FailedStore` in Redis."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def push(self, record: FailedRecord) -> None:
        await self._link.run("failed_keep", ref(record.id), failed_text(record))

    async def get(self, job_id: str) -> FailedRecord | None:
        found = await self._link.run("failed_get", ref(job_id))
        return read_failed(job_id, float(found[0]) / 1e6, found[1]) if found else None

    async def page(
        self, *, cursor: str = "", limit: int = 50, queue: str | None = None, fingerprint: str | None = None
    ) -> tuple[Sequence[FailedRecord], str]:
        """One of the two filters is an index, the other one is applied to its pages."""
        check_cursor(cursor)
        index = "at" if queue is None else f"queue:{queue}"
        if fingerprint is not None:
            index = f"print:{fingerprint}"
        found: list[FailedRecord] = []
        while True:
            following, *fields = await self._link.run("failed_page", index, cursor, limit - len(found))
            cursor = following.decode()
            records = _read_page(fields)
            found += (record for record in records if queue is None or record.queue == queue)
            if not cursor or len(found) >= limit:
                return found, cursor

    async def count(self, *, queue: str | None = None) -> int:
        index = "at" if queue is None else f"queue:{queue}"
        return int(await self._link.command("ZCARD", self._link.key(f"failed:{index}")))

    async def groups(self, *, limit: int = 50) -> Sequence[FailureGroup]:
        """The greatest groups first."""
        reply = await self._link.run("failed_groups")
        groups = [_read_group(*reply[at : at + 5]) for at in range(0, len(reply), 5)]
        return sorted(groups, key=lambda group: (-group.count, -group.last_at))[:limit]

    async def forget(self, job_id: str) -> bool:
        return bool(await self._link.run("failed_forget", ref(job_id)))

    async def forget_all(self, *, queue: str | None = None, older_than: float | None = None) -> int:
        """`older_than`: only records of at least that age, in seconds."""
        index = "at" if queue is None else f"queue:{queue}"
        age = "" if older_than is None else older_than
        total = 0
        while count := await self._link.run("failed_forget_all", index, age, _PORTION):
            total += count
        return total

    async def retry(self, job_id: str) -> Pushed | None:
        record = await self.get(job_id)
        if record is None:
            return None
        return await push_again(self._link, record.queue, record.wire, job_id, failed=True)


def _read_page(fields: Sequence[bytes]) -> list[FailedRecord]:
    return [
        read_failed(unref(fields[at]), float(fields[at + 1]) / 1e6, fields[at + 2])
        for at in range(0, len(fields), 3)
        if fields[at + 2]
    ]


def _read_group(fingerprint: bytes, count: int, first_at: bytes, last_at: bytes, text: bytes) -> FailureGroup:
    last = read_failed("", 0.0, text)
    return FailureGroup(
        fingerprint.decode(),
        last.name,
        last.kind,
        last.error,
        count,
        float(first_at) / 1e6,
        float(last_at) / 1e6,
    )
