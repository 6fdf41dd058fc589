"""tinyjobs on SQLite and on Redis."""

from __future__ import annotations

from tinyjobs import TinyJobs

from benchmarks.peer import KINDS, Peer, Place


class TinyJobsPeer(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._app = TinyJobs(place.url)
        self._tasks = {kind: self._app.task(name=kind)(job) for kind, job in KINDS.items()}

    async def connect(self) -> None:
        await self._app.__aenter__()

    async def aclose(self) -> None:
        await self._app.__aexit__(None, None, None)

    async def install(self) -> None:
        await self.connect()
        await self.aclose()

    async def send(self, kind: str, i: int) -> None:
        await self._tasks[kind].aenqueue(i)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        task = self._tasks["noop"].with_options(delay=seconds)
        for i in numbers:
            await task.aenqueue(i)

    async def work(self, concurrency: int) -> None:
        await self._app.worker(concurrency=concurrency, async_concurrency=concurrency).start()
