"""Time is passed in: production reads the machine, tests move a fake clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What nimbusq needs of time."""

    def time(self) -> float:
        """Seconds since the epoch, to show to people and to convert instants that users give."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never jumps, for local waiting and deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for that long on this clock."""
        ...


class SystemClock:
    """The machine's clocks."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
