"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import Final

_TURNS: Final = 25
"""Turns of the event loop that woken tasks get before time goes on."""


class FakeClock:
    """A `nimbusq.clock.Clock` for one event loop: sleepers wake in order while `advance` passes their time.

    ::

        clock = FakeClock()
        adapter = SyncAdapter(inline=False, clock=clock)
        await clock.advance(60)
    """

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._start = start
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def time(self) -> float:
        """Seconds since the epoch, by this clock."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Seconds by which the clock was advanced."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task until the clock was advanced by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (round(self._elapsed + seconds, 6), next(self._numbers), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: each sleeper wakes at its own time, and its task runs before time goes on.

        Tasks get a number of turns of the event loop, enough for pure asyncio code. What waits for a socket
        or a thread is not waited for.
        """
        end = round(self._elapsed + seconds, 6)
        await self._let_tasks_run()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._elapsed, _, woken = heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
                await self._let_tasks_run()
        self._elapsed = end
        await self._let_tasks_run()

    @property
    def next_wake(self) -> float | None:
        """Seconds until the next sleeper wakes, or None: a test can advance by just that."""
        while self._sleepers and self._sleepers[0][2].done():
            heappop(self._sleepers)
        return self._sleepers[0][0] - self._elapsed if self._sleepers else None

    async def _let_tasks_run(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
