"""The revoke barrier: no step may begin under one assignment of partitions and end under the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Steps pass while it is open; closing it waits for those that are inside. Closed at first.

    A step is "write a record, then mark the offset it came from" or "commit". One that straddled a rebalance would
    write a record again that the partition's next owner has written, or commit over that owner's marks.
    """

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._inside = 0

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """Wait until it is open and pass."""
        while not self._opened.is_set():
            await self._opened.wait()
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    async def close(self) -> None:
        """Let nobody in any more, and wait for those inside."""
        self._opened.clear()
        await self._empty.wait()

    def open(self) -> None:
        self._opened.set()
