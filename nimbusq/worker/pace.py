"""How a loop rests between attempts while its backend is away."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Any, Final

FIRST: Final = 0.25
CAP: Final = 3.0
QUIET: Final = 5.0
"""Seconds between two log lines of one trouble."""


class Pace:
    """Capped exponential rests with jitter, and at most one log line in 5 s. `reset` when a call succeeds."""

    def __init__(self) -> None:
        self._rest = FIRST
        self._quiet_until = 0.0
        self.troubles = 0
        """Attempts that failed in a row."""

    def reset(self) -> None:
        self._rest = FIRST
        self.troubles = 0

    def complain(
        self, log: logging.Logger, message: str, *details: Any, exc_info: BaseException | None = None
    ) -> None:
        """Count a failed attempt and log it, unless the last line is fresh."""
        self.troubles += 1
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            log.warning(message, *details, exc_info=exc_info)

    async def rest(self, stop: asyncio.Event | None = None) -> None:
        """Wait; ends early when `stop` is set."""
        seconds = self._rest * random.uniform(0.75, 1.25)  # noqa: S311  # spreads load, hides nothing
        self._rest = min(CAP, self._rest * 2)
        if stop is None:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            pass
