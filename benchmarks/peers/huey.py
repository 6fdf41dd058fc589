"""huey on SQLite, with threads; it is told to look at least every 100 ms, by default it waits up to 10 s."""

from __future__ import annotations

import time

from huey import SqliteHuey
from huey.consumer import Consumer

from benchmarks.peer import NAP, Peer, Place, forever
from benchmarks.tally import hit


class Huey(Peer):
    blocking = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._huey = SqliteHuey(place.name, filename=str(place.file), results=False)
        self._tasks = {"noop": self._huey.task(name="noop")(noop), "nap": self._huey.task(name="nap")(nap)}

    async def send(self, kind: str, i: int) -> None:
        self._tasks[kind](i)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        for i in numbers:
            self._tasks["noop"].schedule((i,), delay=seconds)

    async def work(self, concurrency: int) -> None:
        Consumer(self._huey, workers=concurrency, initial_delay=0.01, max_delay=0.1, periodic=False).start()
        await forever()


def noop(i: int) -> None:
    hit(i)


def nap(i: int) -> None:
    hit(i)
    time.sleep(NAP)
