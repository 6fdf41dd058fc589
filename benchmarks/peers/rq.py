"""rq with its SimpleWorker, which runs jobs in its own process, one at a time."""

from __future__ import annotations

import time

import redis
from rq import Queue, SimpleWorker

from benchmarks.peer import NAP, Peer, Place, chunks
from benchmarks.tally import hit


class Rq(Peer):
    blocking = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._redis = redis.Redis.from_url(place.url)
        self._queue = Queue(place.name, connection=self._redis)

    async def send(self, kind: str, i: int) -> None:
        self._queue.enqueue(JOBS[kind], i)

    async def send_many(self, kind: str, numbers: range) -> None:
        for chunk in chunks(numbers):
            self._queue.enqueue_many([Queue.prepare_data(JOBS[kind], (i,)) for i in chunk])

    async def work(self, _: int) -> None:
        SimpleWorker([self._queue], connection=self._redis).work(logging_level="ERROR")


def noop(i: int) -> None:
    hit(i)


def nap(i: int) -> None:
    hit(i)
    time.sleep(NAP)


JOBS = {"noop": noop, "nap": nap}
