"""The jobs of the tests with real processes: each notes its start and its end."""

from __future__ import annotations

import asyncio
import os
import time

from nimbusq import Job, current_job
from tests.faults.ledger import ledger


class Trial(Job, retries=5, backoff=0.1):
    """Takes `seconds` without being in anybody's way."""

    n: int
    seconds: float = 0.0

    async def handle(self) -> None:
        me = current_job()
        ledger().note("start", n=self.n, id=me.id, attempt=me.attempt)
        await asyncio.sleep(self.seconds)
        ledger().note("end", n=self.n, id=me.id, attempt=me.attempt)


class BlockingTrial(Trial, retries=3):
    """Blocks the event loop, as a careless handler does; `spin` with Python code instead of a sleep."""

    spin: bool = False

    async def handle(self) -> None:
        me = current_job()
        ledger().note("start", n=self.n, id=me.id, attempt=me.attempt)
        end = time.monotonic() + self.seconds
        if not self.spin:
            time.sleep(self.seconds)  # noqa: ASYNC251  # that is the fault
        while time.monotonic() < end:
            pass
        ledger().note("end", n=self.n, id=me.id, attempt=me.attempt)


class PoisonTrial(Trial, retries=2):
    """Ends its process, as the out-of-memory killer does."""

    async def handle(self) -> None:
        ledger().note("start", n=self.n, id=current_job().id, attempt=current_job().attempt)
        await asyncio.sleep(self.seconds)
        os._exit(137)

    async def failed(self, error: Exception) -> None:
        ledger().note("failed", n=self.n, kind=type(error).__name__)


class StubbornTrial(Trial):
    """Swallows its cancellation."""

    async def handle(self) -> None:
        ledger().note("start", n=self.n, id=current_job().id, attempt=current_job().attempt)
        while True:
            try:
                await asyncio.sleep(self.seconds)
            except asyncio.CancelledError:
                ledger().note("cancel", n=self.n)
