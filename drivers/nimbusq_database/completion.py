"""Calls that are not cut off when their caller is cancelled."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def through(running: asyncio.Future[T]) -> T | None:
    """The outcome of something that must not be cut, whoever cancels the caller meanwhile; None if it failed."""
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue
    return None if running.cancelled() or running.exception() else running.result()
