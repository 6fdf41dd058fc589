"""taskiq, whatever its broker."""

from __future__ import annotations

from taskiq import AsyncBroker
from taskiq.api import run_receiver_task

from benchmarks.peer import KINDS, Peer, Place


class TaskiqPeer(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._broker = self.make_broker()
        self._tasks = {kind: self._broker.task(task_name=kind)(job) for kind, job in KINDS.items()}

    def make_broker(self) -> AsyncBroker:
        raise NotImplementedError

    async def connect(self) -> None:
        await self._broker.startup()

    async def aclose(self) -> None:
        await self._broker.shutdown()

    async def send(self, kind: str, i: int) -> None:
        await self._tasks[kind].kiq(i)

    async def work(self, concurrency: int) -> None:
        self._broker.is_worker_process = True
        await self._broker.startup()
        await run_receiver_task(self._broker, max_async_tasks=concurrency)
