"""Time limits of many short calls, kept by one timer: for drivers that give every call its deadline.

`asyncio.timeout` arms a timer for each call and disarms it, which is a tenth of what a call to a server near by
costs. Here it is armed for the earliest deadline only, so that calls of equal patience one after the other arm none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Deadlines:
    """Owned by one event loop, in which all its calls are made."""

    def __init__(self) -> None:
        self._due: dict[asyncio.Timeout, float] = {}
        """The limits of the calls under way, none of which has a timer of its own, and when they are reached."""
        self._timer: asyncio.TimerHandle | None = None

    async def keep(self, call: Awaitable[T], seconds: float) -> T:
        """Await a call for at most so many seconds. Raises TimeoutError; the call is cancelled then."""
        due = asyncio.get_running_loop().time() + seconds
        async with asyncio.timeout(None) as limit:
            self._due[limit] = due
            if self._timer is None or due < self._timer.when():
                self._arm(due)
            try:
                return await call
            finally:
                self._due.pop(limit, None)

    def close(self) -> None:
        """Keep no timer; calls under way lose their limits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due: float) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for limit in [limit for limit, due in self._due.items() if due <= now]:
            del self._due[limit]
            limit.reschedule(now)
        if self._due:
            self._arm(min(self._due.values()))
