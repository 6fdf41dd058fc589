"""oban: the Python edition of Elixir's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from oban import Oban, job
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from benchmarks.peer import KINDS, Peer, chunks, forever


class ObanPeer(Peer):
    async def connect(self) -> None:
        await self._open_pool()
        self._oban = Oban(pool=self._pool)
        await self._oban.__aenter__()

    async def aclose(self) -> None:
        await self._oban.__aexit__(None, None, None)
        await self._pool.close()

    async def install(self) -> None:
        await self._open_pool()
        await install(self._pool)
        await self._pool.close()

    async def send(self, kind: str, i: int) -> None:
        await self._oban.enqueue(JOBS[kind].new(i))

    async def send_many(self, kind: str, numbers: range) -> None:
        for chunk in chunks(numbers):
            await self._oban.enqueue_many(*[JOBS[kind].new(i) for i in chunk])

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        for chunk in chunks(numbers):
            jobs = [JOBS["noop"].new(i) for i in chunk]
            for each in jobs:
                each.scheduled_at, each.state = due, "scheduled"
            await self._oban.enqueue_many(*jobs)

    async def work(self, concurrency: int) -> None:
        await self._open_pool()
        async with Oban(pool=self._pool, queues={"default": concurrency}):
            await forever()

    async def _open_pool(self) -> None:
        self._pool = AsyncConnectionPool(self.place.url, min_size=2, max_size=20, open=False)
        await self._pool.open()


JOBS = {kind: job(queue="default")(function) for kind, function in KINDS.items()}
