"""Stopping: asked once, the worker drains; asked twice, it cancels what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


class Shutdown:
    """Owned by the worker's event loop."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.hurried = asyncio.Event()
        """Asked a second time."""
        self.error: BaseException | None = None
        """What a part died of without which the worker cannot go on."""

    def ask(self) -> None:
        if self._asked.is_set():
            self.hurried.set()
        self._asked.set()

    def begin(self) -> None:
        """It has begun, whether somebody asked or not; the next `ask` hurries."""
        self._asked.set()

    def fail(self, error: BaseException) -> None:
        """A part without which the worker cannot go on has died."""
        self.error = error
        self._asked.set()

    async def asked(self, owned: Iterable[asyncio.Task[Any]]) -> None:
        """Wait until somebody asks, a part fails, or one of the owned tasks ends."""
        asked = asyncio.create_task(self._asked.wait(), name="nimbusq-asked")
        try:
            await asyncio.wait({asked, *owned}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()


async def watch(
    tasks: Iterable[asyncio.Task[Any]], timeout: float | None, hurry: asyncio.Event | None
) -> bool:
    """Wait for one of the tasks, at most `timeout` seconds; True when `hurry` was set."""
    waiting: set[asyncio.Task[Any]] = set(tasks)
    hurrying = asyncio.create_task(hurry.wait(), name="nimbusq-hurry") if hurry is not None else None
    try:
        await asyncio.wait(
            waiting if hurrying is None else {*waiting, hurrying},
            timeout=timeout,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        if hurrying is not None:
            hurrying.cancel()
    return hurry is not None and hurry.is_set()
