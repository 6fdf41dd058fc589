"""nimbusq with its default settings: leases, fencing, observers and history are on."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.peer import KINDS, Peer, Place
from nimbusq import Job, Manager, Settings, Worker, dispatch, dispatch_many
from nimbusq.builder import Dispatch
from nimbusq.worker.collector import tune_collector

QUEUE = "default"


class Noop(Job):
    i: int

    async def handle(self) -> None:
        await KINDS["noop"](self.i)


class Nap(Job):
    i: int

    async def handle(self) -> None:
        await KINDS["nap"](self.i)


JOBS: dict[str, type[Noop | Nap]] = {"noop": Noop, "nap": Nap}


class Nimbusq(Peer):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._manager = Manager(_url(place), settings=self.settings())

    def settings(self) -> Settings:
        return Settings(
            prefix=self.place.name,
            kafka_topic=self.place.name,
            kafka_group_id=self.place.name,
            sqs_endpoint_url=self.place.url if self.place.driver == "sqs" else None,
        )

    async def install(self) -> None:
        if self.place.driver == "sqs":  # its queues are made over an open connection
            await self._manager.open()
        await self._manager.adapter.setup([QUEUE])
        await self._manager.aclose()

    async def connect(self) -> None:
        await self._manager.__aenter__()

    async def aclose(self) -> None:
        await self._manager.__aexit__()

    def dispatch(self, kind: str, i: int) -> Dispatch[None]:
        return dispatch(JOBS[kind](i=i))

    async def send(self, kind: str, i: int) -> None:
        await self.dispatch(kind, i).send()

    async def send_many(self, kind: str, numbers: range) -> None:
        await self.send_all(self.dispatch(kind, i) for i in numbers)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        await self.send_all(self.dispatch("noop", i).delay(seconds) for i in numbers)

    async def send_all(self, dispatches: Iterable[Dispatch[None]]) -> None:
        for receipt in await dispatch_many(dispatches):
            if receipt.error is not None:
                raise receipt.error

    async def work(self, concurrency: int) -> None:
        async with self._manager:
            tune_collector()  # as `nimbusq work` does
            await Worker(self._manager, QUEUE, concurrency=concurrency).run()


def _url(place: Place) -> str:
    """The place as nimbusq writes it."""
    match place.driver:
        case "kafka":
            return f"kafka://{place.url}"
        case "sqs":
            return "sqs://default"
        case _:
            return place.url
