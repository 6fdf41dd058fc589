"""A worker's settlement and its next claim in one statement: one round trip and one commit for both.

A busy worker of few slots settles jobs and claims the next ones at the same moments, in two tasks. Here they meet.
A claim that may not wait takes the settlement that stands ready, or looks once whether one comes; a settlement that
comes while such a claim is under way stands ready for the next one, and goes by itself when none has followed at
once. Larger ones are cheap enough a job, and better go side by side.

Each of the two is what it would be alone: fenced by its own token, repeated by its own caller.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from nimbusq.driver import Settled, Settlement, Want
from nimbusq.errors import StoreFull, StoreUnavailable
from nimbusq_database.claim import Look

_FEW: Final = 32
"""Jobs of a claim or settlement that is worth joining."""

_Both: TypeAlias = Callable[[Sequence[Settlement], Want], Awaitable[tuple[Sequence[Settled], Look | None]]]


@dataclass(slots=True, eq=False)
class _Ready:
    """A settlement that stands ready. taken: settled with a claim's answer, or with None when it must go alone."""

    settlements: Sequence[Settlement]
    taken: asyncio.Future[Sequence[Settled] | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def end(self, answer: Sequence[Settled] | None) -> None:
        if not self.taken.done():
            self.taken.set_result(answer)

    def fail(self, error: Exception) -> None:
        """An exception carries the traceback of whoever raises it, so that each of the two gets its own."""
        if not self.taken.done():
            self.taken.set_exception(copy.copy(error))


class JoinedCalls:
    """The claims and settlements of one adapter that may be joined. Owned by the event loop of its worker.

    claim, settle: each by itself. both: in one statement, which claims nothing (None) where that has to be judged.
    """

    def __init__(
        self,
        claim: Callable[[Want], Awaitable[Look]],
        settle: Callable[[Sequence[Settlement]], Awaitable[Sequence[Settled]]],
        both: _Both,
    ) -> None:
        self._claim = claim
        self._settle = settle
        self._both = both
        self._claiming = 0
        """Claims that are under way or about to leave."""
        self._ready: _Ready | None = None

    async def claim(self, want: Want) -> Look:
        """One look for jobs, which takes a settlement along."""
        if want.limit > _FEW:
            return await self._claim(want)
        self._claiming += 1
        try:
            if self._ready is None:
                await asyncio.sleep(0)  # the runs that freed these slots are about to be settled
            ready, self._ready = self._ready, None
            if ready is None:
                return await self._claim(want)
            return await self._take_along(ready, want) or await self._claim(want)
        finally:
            self._claiming -= 1
            if not self._claiming and self._ready is not None:
                asyncio.get_running_loop().call_soon(self._let_go, self._ready)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        """Settle with the claim that is about to leave, or the next one; alone where there is none."""
        if not self._claiming or self._ready is not None or len(settlements) > _FEW:
            return await self._settle(settlements)
        ready = self._ready = _Ready(settlements)
        try:
            answers = await ready.taken
        except asyncio.CancelledError:
            if self._ready is ready:
                self._ready = None
            raise
        return await self._settle(settlements) if answers is None else answers

    async def _take_along(self, ready: _Ready, want: Want) -> Look | None:
        try:
            answers, look = await self._both(ready.settlements, want)
        except (StoreUnavailable, StoreFull) as error:
            ready.fail(error)
            raise
        except BaseException:  # the claim's own trouble
            ready.end(None)
            raise
        ready.end(answers)
        return look

    def _let_go(self, ready: _Ready | None) -> None:
        """No claim has followed at once."""
        if ready is not None and ready is self._ready and not self._claiming:
            self._ready = None
            ready.end(None)
