"""streaq: Redis streams and Lua; results are kept for a minute."""

from __future__ import annotations

from streaq import Worker

from benchmarks.peer import KINDS, Peer, Place, chunks


class Streaq(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._worker = self._make_worker(16)

    def _make_worker(self, concurrency: int) -> Worker:
        worker = Worker(redis_url=self.place.url, concurrency=concurrency)
        self._tasks = {kind: worker.task(name=kind, ttl=60)(job) for kind, job in KINDS.items()}
        return worker

    async def connect(self) -> None:
        await self._worker.__aenter__()

    async def aclose(self) -> None:
        await self._worker.__aexit__(None, None, None)

    async def send(self, kind: str, i: int) -> None:
        await self._tasks[kind].enqueue(i)

    async def send_many(self, kind: str, numbers: range) -> None:
        for chunk in chunks(numbers):
            await self._worker.enqueue_many([self._tasks[kind].enqueue(i) for i in chunk])

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        for chunk in chunks(numbers):
            await self._worker.enqueue_many(
                [self._tasks["noop"].enqueue(i).start(delay=seconds) for i in chunk]
            )

    async def work(self, concurrency: int) -> None:
        await self._make_worker(concurrency).run_async()
