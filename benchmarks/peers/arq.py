"""arq: polls twice a second; results are kept for a minute here, an hour by default."""

from __future__ import annotations

from typing import Any

from arq import Worker, create_pool, func
from arq.connections import RedisSettings

from benchmarks.peer import KINDS, Peer, Place


class Arq(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._settings = RedisSettings.from_dsn(place.url)

    async def connect(self) -> None:
        self._pool = await create_pool(self._settings)

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def send(self, kind: str, i: int) -> None:
        await self._pool.enqueue_job(kind, i)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        for i in numbers:
            await self._pool.enqueue_job("noop", i, _defer_by=seconds)

    async def work(self, concurrency: int) -> None:
        worker = Worker(
            functions=[func(noop, name="noop"), func(nap, name="nap")],
            redis_settings=self._settings,
            max_jobs=concurrency,
            keep_result=60,
            health_check_interval=3600,
        )
        await worker.async_run()


async def noop(_: Any, i: int) -> None:
    await KINDS["noop"](i)


async def nap(_: Any, i: int) -> None:
    await KINDS["nap"](i)
