"""pgqueuer: dequeues and logs in groups. By default its workers have no cap; asked for 1,000 they get that."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peer import KINDS, Peer, chunks

UNCAPPED = 1000


class PgQueuerPeer(Peer):
    async def connect(self) -> None:
        self._connection = await asyncpg.connect(self.place.url)
        self._queries = Queries(AsyncpgDriver(self._connection))

    async def aclose(self) -> None:
        await self._connection.close()

    async def install(self) -> None:
        await self.connect()
        await self._queries.install()
        await self.aclose()

    async def send(self, kind: str, i: int) -> None:
        await self._queries.enqueue(kind, b"%d" % i)

    async def send_many(self, kind: str, numbers: range) -> None:
        for chunk in chunks(numbers):
            n = len(chunk)
            await self._queries.enqueue([kind] * n, [b"%d" % i for i in chunk], [0] * n)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        for chunk in chunks(numbers):
            n = len(chunk)
            after = [timedelta(seconds=seconds)] * n
            await self._queries.enqueue(["noop"] * n, [b"%d" % i for i in chunk], [0] * n, after)

    async def work(self, concurrency: int) -> None:
        queuer = PgQueuer.from_asyncpg_connection(await asyncpg.connect(self.place.url))

        @queuer.entrypoint("noop")
        async def noop(job: Job) -> None:
            await KINDS["noop"](int(job.payload or b""))

        @queuer.entrypoint("nap")
        async def nap(job: Job) -> None:
            await KINDS["nap"](int(job.payload or b""))

        if concurrency >= UNCAPPED:
            await queuer.run(batch_size=100)
        else:  # it asks that the cap be at least twice the batch
            await queuer.run(batch_size=max(1, concurrency // 2), max_concurrent_tasks=concurrency)
