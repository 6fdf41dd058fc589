"""The jobs of the chaos runs: every kind that a store treats in its own way.

`n` tells the jobs of a run apart, also where the sender never learnt an id. Each handler notes its start and,
when it has had its effect, its end.
"""

from __future__ import annotations

import asyncio
import os
import time

from nimbusq import BatchState, Fail, Job, Release, current_job
from tests.faults.ledger import ledger

QUEUE = "chaos"


class Work(Job, queue=QUEUE, retries=25, backoff=[0.05, 0.1, 0.2, 0.4]):
    """Succeeds after `seconds`."""

    n: int
    seconds: float = 0.005

    async def handle(self) -> None:
        self.begin()
        await asyncio.sleep(self.seconds)
        self.finish()

    def begin(self) -> None:
        me = current_job()
        key = getattr(self, "key", None)
        ledger().note("start", n=self.n, id=me.id, attempt=me.attempt, fence=me.fence, key=key)

    def finish(self) -> None:
        ledger().note("end", n=self.n, id=current_job().id)


class Shaky(Work):
    """Fails in its first runs."""

    failures: int = 2

    async def handle(self) -> None:
        self.begin()
        await asyncio.sleep(self.seconds)
        if current_job().attempt <= self.failures:
            raise ValueError(f"run {current_job().attempt}")
        self.finish()


class Hesitant(Work, retries=0):
    """Puts itself back; its only attempt is not spent by that, but may be lost with a worker."""

    times: int = 3

    async def handle(self) -> None:
        self.begin()
        if current_job().releases < self.times:
            raise Release(0.1)
        self.finish()


class Hopeless(Work):
    """Fails for good."""

    async def handle(self) -> None:
        self.begin()
        raise Fail("as ever")


class Alone(Work):
    """Sent with a unique or an overlap key."""

    key: str
    seconds: float = 0.15


class Stalling(Work):
    """Blocks its event loop."""

    async def handle(self) -> None:
        self.begin()
        time.sleep(self.seconds)  # noqa: ASYNC251  # that is the fault
        self.finish()


class Poison(Work, retries=2):
    """Ends its worker."""

    async def handle(self) -> None:
        self.begin()
        os._exit(9)


class Link(Work):
    """A link of a chain; the broken one ends it."""

    broken: bool = False

    async def handle(self) -> None:
        self.begin()
        if self.broken:
            raise Fail("a broken link")
        self.finish()


class Tell(Job, queue=QUEUE, retries=25, backoff=0.1):
    """A callback: notes that it was called, of what, and for whom."""

    kind: str
    of: str

    async def handle(self) -> None:
        ledger().note("callback", kind=self.kind, of=self.of, id=current_job().id)


class TellBatch(Tell):
    """The callback of a batch, which must have ended when it runs, or for a catch have failures."""

    async def handle(self, batch: BatchState) -> None:  # type: ignore[override]  # what a callback may take
        ledger().note(
            "callback",
            kind=self.kind,
            of=self.of,
            id=current_job().id,
            failed=batch.failed,
            ended=batch.finished,
        )
