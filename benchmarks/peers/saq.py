"""saq on Redis and on PostgreSQL."""

from __future__ import annotations

import time
from typing import Any

from saq import Queue, Worker

from benchmarks.peer import KINDS, Peer, Place


class SaqRedis(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._queue = self.make_queue()

    def make_queue(self) -> Queue:
        return Queue.from_url(self.place.url)

    async def connect(self) -> None:
        await self._queue.connect()

    async def aclose(self) -> None:
        await self._queue.disconnect()

    async def send(self, kind: str, i: int) -> None:
        await self._queue.enqueue(kind, i=i)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        due = int(time.time() + seconds)
        for i in numbers:
            await self._queue.enqueue("noop", i=i, scheduled=due)

    async def work(self, concurrency: int) -> None:
        await self.connect()
        await Worker(queue=self._queue, functions=[noop, nap], concurrency=concurrency).start()


class SaqPostgres(SaqRedis):
    def make_queue(self) -> Queue:
        return Queue.from_url(self.place.url, min_size=2, max_size=20)

    async def install(self) -> None:
        await self.connect()
        await self.aclose()


async def noop(_: Any, *, i: int) -> None:
    await KINDS["noop"](i)


async def nap(_: Any, *, i: int) -> None:
    await KINDS["nap"](i)
