"""docket: Redis streams; its package is pydocket."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from docket import Docket, Worker

from benchmarks.peer import KINDS, Peer, Place, chunks


class DocketPeer(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._docket = Docket(name=place.name, url=place.url)

    async def connect(self) -> None:
        await self._docket.__aenter__()
        for job in KINDS.values():
            self._docket.register(job)

    async def aclose(self) -> None:
        await self._docket.__aexit__(None, None, None)

    async def send(self, kind: str, i: int) -> None:
        await self._docket.add(KINDS[kind])(i)

    async def send_many(self, kind: str, numbers: range) -> None:
        for chunk in chunks(numbers):
            await self._docket.add_many([self._docket.call(KINDS[kind])(i) for i in chunk])

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        when = datetime.now(UTC) + timedelta(seconds=seconds)
        for chunk in chunks(numbers):
            await self._docket.add_many([self._docket.call(KINDS["noop"], when=when)(i) for i in chunk])

    async def work(self, concurrency: int) -> None:
        await self.connect()
        async with Worker(self._docket, concurrency=concurrency) as worker:
            await worker.run_forever()
