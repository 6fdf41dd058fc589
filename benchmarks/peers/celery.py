"""celery: prefork at two processes, threads above; results are ignored, the rest is its default."""

from __future__ import annotations

import time

from celery import Celery

from benchmarks.peer import NAP, Peer, Place
from benchmarks.tally import hit


class CeleryPeer(Peer):
    blocking = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._app = Celery(place.name, broker=place.url)
        self._app.conf.update(
            task_ignore_result=True, broker_connection_retry_on_startup=True, worker_hijack_root_logger=False
        )
        self._tasks = {"noop": self._app.task(name="noop")(noop), "nap": self._app.task(name="nap")(nap)}

    async def send(self, kind: str, i: int) -> None:
        self._tasks[kind].delay(i)

    async def send_delayed(self, numbers: range, seconds: float) -> None:
        for i in numbers:
            self._tasks["noop"].apply_async((i,), countdown=seconds)

    async def work(self, concurrency: int) -> None:
        pool = "prefork" if concurrency <= 4 else "threads"
        options = ["-P", pool, "-c", str(concurrency), "-l", "ERROR", "--without-gossip", "--without-mingle"]
        self._app.worker_main(["worker", *options])


def noop(i: int) -> None:
    hit(i)


def nap(i: int) -> None:
    hit(i)
    time.sleep(NAP)
