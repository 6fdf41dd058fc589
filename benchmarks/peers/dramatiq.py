"""dramatiq on Redis, and on PostgreSQL by dramatiq-pg; jobs run in threads, coroutines in one loop beside them."""

from __future__ import annotations

import time

from dramatiq import Broker, Worker, actor, set_broker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AsyncIO

from benchmarks.peer import KINDS, NAP, Peer, Place, forever
from benchmarks.tally import hit


class DramatiqRedis(Peer):
    blocking = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._broker = self.make_broker()
        set_broker(self._broker)
        self._actors = {"noop": actor(noop), "nap": actor(self.nap, actor_name="nap")}

    nap = staticmethod(KINDS["nap"])

    def make_broker(self) -> Broker:
        broker = RedisBroker(url=self.place.url)
        broker.add_middleware(AsyncIO())
        return broker

    async def send(self, kind: str, i: int) -> None:
        self._actors[kind].send(i)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        for i in numbers:
            self._actors["noop"].send_with_options(args=(i,), delay=int(seconds * 1000))

    async def work(self, concurrency: int) -> None:
        Worker(self._broker, worker_threads=concurrency).start()
        await forever()


def noop(i: int) -> None:
    hit(i)


def blocking_nap(i: int) -> None:
    hit(i)
    time.sleep(NAP)
