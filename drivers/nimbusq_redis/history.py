"""Jobs that ended, newest first (see lua/lib/records.lua)."""

from __future__ import annotations

from collections.abc import Sequence

from nimbusq.driver import DriverSettings, HistoryRow
from nimbusq_redis.cursors import check_cursor
from nimbusq_redis.link import Link
from nimbusq_redis.records import history_text, read_history
from nimbusq_redis.refs import ref, unref


class RedisHistory:
    """`nimbusq.driver.History` in Redis."""

    def __init__(self, link: Link, settings: DriverSettings) -> None:
        self._link = link
        self._limit = settings.history_limit
        self._ttl = settings.history_ttl

    async def push(self, rows: Sequence[HistoryRow]) -> None:
        flat = [part for row in rows for part in (ref(row.id), history_text(row))]
        if flat:
            await self._link.run("history_keep", self._limit, self._ttl, *flat)

    async def page(
        self, *, cursor: str = "", limit: int = 50, state: str | None = None, queue: str | None = None
    ) -> tuple[Sequence[HistoryRow], str]:
        """The filters are applied to pages of the whole history, which is capped."""
        check_cursor(cursor)
        found: list[HistoryRow] = []
        portion = limit if state is None and queue is None else max(limit, 500)
        while True:
            following, *fields = await self._link.run("history_page", self._ttl, cursor, portion)
            cursor = following.decode()
            for at in range(0, len(fields), 3):
                row = read_history(unref(fields[at]), float(fields[at + 1]) / 1e6, fields[at + 2])
                if (state is None or row.state == state) and (queue is None or row.queue == queue):
                    found.append(row)
                    if len(found) == limit:
                        last = at + 3 >= len(fields) and not cursor
                        return found, "" if last else fields[at + 1].decode()
            if not cursor:
                return found, ""

    async def keep_result(self, job_id: str, result: bytes, ttl: float) -> None:
        await self._link.run("result_keep", ref(job_id), ttl, result)
