"""Calls that are not cut off when their caller is cancelled: most have changed the store already by then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from nimbusq.errors import StoreError

T = TypeVar("T")


async def to_its_end(
    call: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, Any]] | None = None
) -> T:
    """Await `call`; a caller that is cancelled meanwhile waits for its end, has it undone, and is cancelled then.

    The call has a deadline of its own, so that this cannot last.
    """
    task = asyncio.ensure_future(call)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled() and task.exception() is None and undo is not None:
        with suppress(StoreError):  # it is tried once: what is left undone ends by its own time limits
            await to_its_end(undo(task.result()))
    raise cancelled
