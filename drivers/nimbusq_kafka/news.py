"""A bell for all who wait at this moment."""

from __future__ import annotations

import asyncio


class News:
    """Owned by one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake those who wait now; who comes later waits for the next ring."""
        rung, self._event = self._event, asyncio.Event()
        rung.set()

    async def wait(self) -> None:
        await self._event.wait()
