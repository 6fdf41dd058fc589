"""procrastinate on psycopg."""

from __future__ import annotations

from procrastinate import App, PsycopgConnector

from benchmarks.peer import KINDS, Peer, Place, chunks


class ProcrastinatePeer(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._app = App(connector=PsycopgConnector(conninfo=place.url, min_size=2, max_size=20))
        self._tasks = {kind: self._app.task(name=kind)(job) for kind, job in KINDS.items()}

    async def connect(self) -> None:
        await self._app.open_async()

    async def aclose(self) -> None:
        await self._app.close_async()

    async def install(self) -> None:
        await self.connect()
        await self._app.schema_manager.apply_schema_async()
        await self.aclose()

    async def send(self, kind: str, i: int) -> None:
        await self._tasks[kind].defer_async(i=i)

    async def send_many(self, kind: str, numbers: range) -> None:
        for chunk in chunks(numbers):
            await self._tasks[kind].batch_defer_async(*[{"i": i} for i in chunk])

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        task = self._tasks["noop"].configure(schedule_in={"seconds": int(seconds)})
        for chunk in chunks(numbers):
            await task.batch_defer_async(*[{"i": i} for i in chunk])

    async def work(self, concurrency: int) -> None:
        await self.connect()
        await self._app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)
