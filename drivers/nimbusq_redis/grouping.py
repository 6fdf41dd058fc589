"""Pushes that come while others are under way go together in the next call.

One task that pushes has a round trip of its own; sixty-four that push at once share a few, in the order in which
they came. No task of this module's own sends: of the pushes that wait, the first is told to send for all. A push
may so wait for the deadline of one other call before its own begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nimbusq_redis.completion import to_its_end

_TOGETHER: Final = 500
"""Jobs in one call of several pushes, so that none of them waits long."""
_FIELDS: Final = 4


@dataclass(slots=True, eq=False)
class _Push:
    """One push. turn: done when it may send, or when another one has sent it (then `answers` are set)."""

    entries: Sequence[Any]
    turn: asyncio.Future[None]
    answers: Sequence[Any] | None = None
    error: Exception | None = field(default=None, repr=False)


class PushGroups:
    """The pushes of one adapter. `send` takes the entries of many and answers one value for each job."""

    def __init__(self, send: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]) -> None:
        self._send = send
        self._waiting: deque[_Push] = deque()
        self._busy = False

    async def push(self, entries: Sequence[Any]) -> Sequence[Any]:
        """The answers to these entries. Cancelled before its turn, nothing of it is sent."""
        if not self._busy:
            return await self._alone(entries)
        push = _Push(entries, asyncio.get_running_loop().create_future())
        await self._turn(push)
        if push.answers is None and push.error is None:
            await self._lead(push)
        if push.error is not None:
            raise push.error
        assert push.answers is not None, "a push that did not fail was answered"
        return push.answers

    async def _alone(self, entries: Sequence[Any]) -> Sequence[Any]:
        self._busy = True
        try:
            return await self._send(entries)
        finally:
            self._next_turn()

    async def _turn(self, push: _Push) -> None:
        self._waiting.append(push)
        try:
            await push.turn
        except asyncio.CancelledError:
            if push in self._waiting:
                self._waiting.remove(push)
            elif not push.turn.cancelled() and push.answers is None and push.error is None:
                self._next_turn()  # it was told to send, and does not
            raise

    async def _lead(self, push: _Push) -> None:
        """Send this push and those that wait, in one call."""
        group = [push, *self._followers(len(push.entries))]
        try:
            if len(group) == 1:
                push.answers = await self._send(push.entries)
            else:
                await to_its_end(self._send_all(group))
        finally:
            self._next_turn()

    def _followers(self, size: int) -> list[_Push]:
        followers = []
        while self._waiting and size + len(self._waiting[0].entries) <= _TOGETHER * _FIELDS:
            follower = self._waiting.popleft()
            if not follower.turn.cancelled():
                size += len(follower.entries)
                followers.append(follower)
        return followers

    async def _send_all(self, group: Sequence[_Push]) -> None:
        try:
            answers = await self._send([part for push in group for part in push.entries])
        except Exception as error:  # noqa: BLE001  # each of them raises it
            for push in group:
                push.error = error
        else:
            first = 0
            for push in group:
                count = len(push.entries) // _FIELDS
                push.answers = answers[first : first + count]
                first += count
        for push in group[1:]:
            if not push.turn.done():
                push.turn.set_result(None)

    def _next_turn(self) -> None:
        """Whoever has waited longest sends next."""
        while self._waiting:
            push = self._waiting.popleft()
            if not push.turn.done():
                push.turn.set_result(None)
                return
        self._busy = False
