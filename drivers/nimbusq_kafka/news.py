"""A bell for all who listen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


class News:
    """Owned by one event loop.

    Listen first, look second, wait third: what happens between looking and waiting is not missed.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake all who listen."""
        rung, self._event = self._event, asyncio.Event()
        rung.set()

    def listen(self) -> asyncio.Event:
        """Set by the next ring."""
        return self._event


async def within(seconds: float, what: Awaitable[object]) -> bool:
    """Wait for it, at most so many seconds; whether it happened."""
    try:
        async with asyncio.timeout(seconds):
            await what
    except TimeoutError:
        return False
    return True
