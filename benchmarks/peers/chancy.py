"""chancy, with its asyncio executor and eager polling."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from chancy import Chancy, Queue, Worker, job

from benchmarks.peer import CHUNK, KINDS, Peer


class ChancyPeer(Peer):
    async def connect(self) -> None:
        self._chancy = Chancy(self.place.url)
        await self._chancy.__aenter__()

    async def aclose(self) -> None:
        await self._chancy.__aexit__(None, None, None)

    async def install(self) -> None:
        async with Chancy(self.place.url) as chancy:
            await chancy.migrate()

    async def send(self, kind: str, i: int) -> None:
        await self._chancy.push(JOBS[kind].job.with_kwargs(i=i))

    async def send_many(self, kind: str, numbers: range) -> None:
        await self._push(JOBS[kind].job.with_kwargs(i=i) for i in numbers)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        due = JOBS["noop"].job.with_scheduled_at(datetime.now(UTC) + timedelta(seconds=seconds))
        await self._push(due.with_kwargs(i=i) for i in numbers)

    async def _push(self, jobs: Iterable[Any]) -> None:
        async for _ in self._chancy.push_many(jobs, batch_size=CHUNK):
            pass

    async def work(self, concurrency: int) -> None:
        queue = Queue(
            "default",
            concurrency=concurrency,
            executor="chancy.executors.asyncex.AsyncExecutor",
            polling_interval=1,
            eager_polling=True,
        )
        async with Chancy(self.place.url) as chancy:
            await chancy.declare(queue, upsert=True)
            async with Worker(chancy) as worker:
                await worker.wait_for_shutdown()


@job(queue="default")
async def noop(*, i: int) -> None:
    await KINDS["noop"](i)


@job(queue="default")
async def nap(*, i: int) -> None:
    await KINDS["nap"](i)


JOBS: dict[str, Any] = {"noop": noop, "nap": nap}
