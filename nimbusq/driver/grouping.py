"""Pushes that come while another one is under way share the next call: for drivers with a store of their own.

A push that comes alone goes at once. Of those that wait, the first is told to send for all, so that no task of this
module's own is needed. A push may so wait for one other call's deadline before its own begins. Large pushes gain
nothing by it and go by themselves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from nimbusq.driver.claims import Pushed
from nimbusq.driver.completion import to_its_end
from nimbusq.envelope import Envelope
from nimbusq.errors import StoreFull, StoreUnavailable

_LARGE: Final = 100
"""Jobs of one push that is not worth joining others."""
_TOGETHER: Final = 500
"""Jobs in one call of several pushes, so that none of them waits long."""


@dataclass(slots=True, eq=False)
class _Push:
    """One push that waits. turn: its answers, when another one has sent it; None when it may send."""

    envelopes: Sequence[Envelope]
    turn: asyncio.Future[Sequence[Pushed] | None]

    @property
    def leads(self) -> bool:
        """It was told to send."""
        turn = self.turn
        return turn.done() and not turn.cancelled() and not turn.exception() and turn.result() is None


class PushGroups:
    """The pushes of one adapter, in one event loop. `send` stores jobs and answers in their order."""

    def __init__(self, send: Callable[[Sequence[Envelope]], Awaitable[Sequence[Pushed]]]) -> None:
        self._send = send
        self._waiting: deque[_Push] = deque()
        self._busy = False

    async def push(self, envelopes: Sequence[Envelope]) -> Sequence[Pushed]:
        """Store these jobs. Cancelled before its turn, nothing of it is stored."""
        if len(envelopes) >= _LARGE:
            return await self._send(envelopes)
        if self._busy:
            return await self._wait(_Push(envelopes, asyncio.get_running_loop().create_future()))
        self._busy = True
        try:
            return await self._send(envelopes)
        finally:
            self._next_turn()

    async def _wait(self, push: _Push) -> Sequence[Pushed]:
        self._waiting.append(push)
        try:
            answers = await push.turn
        except asyncio.CancelledError:
            if push in self._waiting:
                self._waiting.remove(push)
            elif push.leads:
                self._next_turn()
            raise
        return await self._lead(push) if answers is None else answers

    async def _lead(self, push: _Push) -> Sequence[Pushed]:
        """Send this push and those that wait; a cancel of this one cuts nothing of the others."""
        try:
            return await to_its_end(self._send_all([push, *self._followers(len(push.envelopes))]))
        finally:
            self._next_turn()

    def _followers(self, size: int) -> list[_Push]:
        followers = []
        while self._waiting and size + len(self._waiting[0].envelopes) <= _TOGETHER:
            follower = self._waiting.popleft()
            if not follower.turn.cancelled():
                size += len(follower.envelopes)
                followers.append(follower)
        return followers

    async def _send_all(self, group: Sequence[_Push]) -> Sequence[Pushed]:
        """Send the pushes of a group together; the answers to the first, the others get theirs by their turn."""
        leader, *followers = group
        try:
            answers = iter(await self._send([one for push in group for one in push.envelopes]))
        except Exception as error:
            if followers and not isinstance(error, StoreUnavailable | StoreFull):  # the fault of one of them
                return await self._send_each(group)
            for push in followers:
                _fail(push, error)
            raise
        mine = [next(answers) for _ in leader.envelopes]
        for push in followers:
            _answer(push, [next(answers) for _ in push.envelopes])
        return mine

    async def _send_each(self, group: Sequence[_Push]) -> Sequence[Pushed]:
        leader, *followers = group
        for push in followers:
            try:
                _answer(push, await self._send(push.envelopes))
            except Exception as error:  # noqa: BLE001  # it is raised where that push waits
                _fail(push, error)
        return await self._send(leader.envelopes)

    def _next_turn(self) -> None:
        """Whoever has waited longest sends next."""
        while self._waiting:
            push = self._waiting.popleft()
            if not push.turn.done():
                push.turn.set_result(None)
                return
        self._busy = False


def _answer(push: _Push, answers: Sequence[Pushed]) -> None:
    if not push.turn.done():
        push.turn.set_result(answers)


def _fail(push: _Push, error: Exception) -> None:
    if not push.turn.done():
        push.turn.set_exception(error)
