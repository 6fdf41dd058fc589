"""Pushes that come while another one is under way share the next call: for drivers with a store of their own.

A push that comes alone goes at once. Of those that wait, the first is told to send for all, so that no task of this
module's own is needed. Large pushes gain nothing by it and go by themselves. When the store does not answer, whoever
has waited for as long as a call may take is told so, unsent, instead of waiting for call after call.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from nimbusq.driver.claims import Pushed
from nimbusq.driver.completion import to_its_end
from nimbusq.envelope import Envelope
from nimbusq.errors import StoreFull, StoreUnavailable

_LARGE: Final = 100
"""Jobs of one push that is not worth joining others."""
_TOGETHER: Final = 500
"""Jobs in one call of several pushes, so that none of them waits long."""
_BYTES: Final = 1_000_000
"""Bytes of their bodies, likewise: what each could send alone must not be too much together."""


@dataclass(slots=True, eq=False)
class _Push:
    """One push that waits. turn: its answers, when another one has sent it; None when it may send."""

    envelopes: Sequence[Envelope]
    turn: asyncio.Future[Sequence[Pushed] | None] = field(init=False)
    since: float = field(init=False)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.turn, self.since = loop.create_future(), loop.time()

    @property
    def leads(self) -> bool:
        """It was told to send."""
        turn = self.turn
        return turn.done() and not turn.cancelled() and not turn.exception() and turn.result() is None

    def answer(self, answers: Sequence[Pushed]) -> None:
        if not self.turn.done():
            self.turn.set_result(answers)

    def fail(self, error: Exception) -> None:
        """Each push raises an error of its own: an exception carries the traceback of whoever raises it."""
        if not self.turn.done():
            self.turn.set_exception(copy.copy(error))


class PushGroups:
    """The pushes of one adapter, in one event loop. `send` stores jobs and answers in their order.

    patience: seconds that a call of `send` may take.
    """

    def __init__(
        self, send: Callable[[Sequence[Envelope]], Awaitable[Sequence[Pushed]]], *, patience: float
    ) -> None:
        self._send = send
        self._patience = patience
        self._waiting: deque[_Push] = deque()
        self._busy = False

    async def push(self, envelopes: Sequence[Envelope]) -> Sequence[Pushed]:
        """Store these jobs. Cancelled before its turn, nothing of it is stored."""
        if len(envelopes) >= _LARGE or _size(envelopes) > _BYTES:
            return await self._send(envelopes)
        if self._busy:
            return await self._wait(_Push(envelopes))
        self._busy = True
        try:
            return await self._send(envelopes)
        except StoreUnavailable as error:
            self._let_go(error)
            raise
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
        followers = self._followers(push.envelopes)
        try:
            if not followers:
                return await self._call(push.envelopes)
            return await to_its_end(self._send_all([push, *followers]))
        finally:
            self._next_turn()

    def _followers(self, first: Sequence[Envelope]) -> list[_Push]:
        followers: list[_Push] = []
        jobs, size = len(first), _size(first)
        while self._waiting:
            following = self._waiting[0].envelopes
            jobs, size = jobs + len(following), size + _size(following)
            if jobs > _TOGETHER or size > _BYTES:
                break
            follower = self._waiting.popleft()
            if not follower.turn.cancelled():
                followers.append(follower)
        return followers

    async def _send_all(self, group: Sequence[_Push]) -> Sequence[Pushed]:
        """Send the pushes of a group together; the answers to the first, the others get theirs by their turn."""
        leader, *followers = group
        try:
            answers = iter(await self._call([one for push in group for one in push.envelopes]))
        except Exception as error:
            if not isinstance(error, StoreUnavailable | StoreFull):  # the fault of one of them
                return await self._send_each(group)
            for push in followers:
                push.fail(error)
            raise
        mine = [next(answers) for _ in leader.envelopes]
        for push in followers:
            push.answer([next(answers) for _ in push.envelopes])
        return mine

    async def _send_each(self, group: Sequence[_Push]) -> Sequence[Pushed]:
        """One after the other, in their order, until the store is away."""
        results: list[Sequence[Pushed] | Exception] = []
        away: StoreUnavailable | None = None
        for push in group:
            try:
                results.append(_unsent(away) if away else await self._call(push.envelopes))
            except Exception as error:  # noqa: BLE001  # it is raised where that push waits
                results.append(error)
                away = error if isinstance(error, StoreUnavailable) else None
        for push, result in zip(group[1:], results[1:], strict=True):
            if isinstance(result, Exception):
                push.fail(result)
            else:
                push.answer(result)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    async def _call(self, envelopes: Sequence[Envelope]) -> Sequence[Pushed]:
        try:
            return await self._send(envelopes)
        except StoreUnavailable as error:
            self._let_go(error)
            raise

    def _let_go(self, error: StoreUnavailable) -> None:
        """Tell those who have waited for long enough."""
        overdue = asyncio.get_running_loop().time() - self._patience
        while self._waiting and self._waiting[0].since <= overdue:
            self._waiting.popleft().fail(_unsent(error))

    def _next_turn(self) -> None:
        """Whoever has waited longest sends next."""
        while self._waiting:
            push = self._waiting.popleft()
            if not push.turn.done():
                push.turn.set_result(None)
                return
        self._busy = False


def _size(envelopes: Sequence[Envelope]) -> int:
    if len(envelopes) == 1:
        return len(envelopes[0].body)
    return sum(len(one.body) for one in envelopes)


def _unsent(error: StoreUnavailable) -> StoreUnavailable:
    """Not the error itself: of what was never sent, nothing is uncertain."""
    return StoreUnavailable(f"not sent, since the store did not answer the call before it: {error}")
