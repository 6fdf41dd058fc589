"""qler on SQLite."""

from __future__ import annotations

from qler import Queue, Worker, task

from benchmarks.peer import KINDS, Peer, Place, chunks


class Qler(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._queue = Queue(str(place.file))
        self._tasks = {kind: task(self._queue)(job) for kind, job in KINDS.items()}

    async def connect(self) -> None:
        await self._queue.init_db()

    async def aclose(self) -> None:
        await self._queue.close()

    async def install(self) -> None:
        await self.connect()
        await self.aclose()

    async def send(self, kind: str, i: int) -> None:
        await self._tasks[kind].enqueue(i=i)

    async def send_many(self, kind: str, numbers: range) -> None:
        path = self._tasks[kind].task_path
        for chunk in chunks(numbers):
            await self._queue.enqueue_many([{"task_path": path, "kwargs": {"i": i}} for i in chunk])

    async def work(self, concurrency: int) -> None:
        await self.connect()
        await Worker(self._queue, queues=["default"], concurrency=concurrency).run()
