"""Time limits of many short calls, kept by one timer: for drivers that give every call its deadline.

`asyncio.timeout` arms a timer for each call and disarms it, which is a tenth of what a call to a server near by
costs. Here it is armed for the earliest deadline only, so that calls of equal patience one after the other arm none.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Deadlines:
    """Owned by one event loop, in which all its calls are made."""

    def __init__(self) -> None:
        self._limits: set[Limit] = set()
        """Of the calls under way."""
        self._timer: asyncio.Handle | None = None
        self._armed_for = 0.0
        """When the timer goes off, where there is one: uvloop's own does not tell when that is at once."""

    def within(self, seconds: float) -> Limit:
        """A context in which the current task may await for so many seconds. Raises TimeoutError."""
        return Limit(self, asyncio.get_running_loop().time() + seconds)

    def close(self) -> None:
        """Keep no timer; calls under way lose their limits."""
        self._limits.clear()
        self._disarm()

    def add(self, limit: Limit) -> None:
        self._limits.add(limit)
        if self._timer is None or limit.due < self._armed_for:
            self._arm(limit.due)

    def discard(self, limit: Limit) -> None:
        self._limits.discard(limit)

    def _arm(self, due: float) -> None:
        self._disarm()
        self._timer = asyncio.get_running_loop().call_at(due, self._look)
        self._armed_for = due

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for limit in [limit for limit in self._limits if limit.due <= now]:
            self._limits.discard(limit)
            limit.reach()
        if self._limits:
            self._arm(min(limit.due for limit in self._limits))


class Limit:
    """What `asyncio.Timeout` is, but for the timer, and entered without a coroutine."""

    __slots__ = ("_cancelling", "_deadlines", "_reached", "_task", "due")

    def __init__(self, deadlines: Deadlines, due: float) -> None:
        self._deadlines = deadlines
        self.due = due
        """On the loop's clock."""
        self._reached = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call with a deadline is made in a task.")
        self._task, self._cancelling = task, task.cancelling()
        self._deadlines.add(self)
        return self

    def reach(self) -> None:
        """The call has taken its time: cut it off."""
        self._reached = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._deadlines.discard(self)
        # A cancel of somebody else's goes on, also where it came with the deadline's.
        if self._reached and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
