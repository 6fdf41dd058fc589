"""pulse-queue on SQLite."""

from __future__ import annotations

from typing import Any

from pulse_queue import HandlerRegistry, Store, WorkerPool
from pulse_queue.worker import AsyncStore

from benchmarks.peer import KINDS, Peer, forever


class PulseQueue(Peer):
    async def install(self) -> None:
        Store(str(self.place.file)).close()

    async def connect(self) -> None:
        self._store = AsyncStore(Store(str(self.place.file)))

    async def aclose(self) -> None:
        self._store.sync.close()

    async def send(self, kind: str, i: int) -> None:
        await self._store.enqueue({"type": kind, "i": i})

    async def work(self, concurrency: int) -> None:
        registry = HandlerRegistry()

        @registry.register("noop")
        async def noop(context: Any) -> None:
            await KINDS["noop"](context.payload["i"])

        @registry.register("nap")
        async def nap(context: Any) -> None:
            await KINDS["nap"](context.payload["i"])

        await WorkerPool(Store(str(self.place.file)), registry, concurrency=concurrency).start()
        await forever()
