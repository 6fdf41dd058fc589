"""A worker's settlement and its next claim in one statement: one round trip and one commit for both.

A busy worker of few slots claims the next jobs as soon as some have ended, and decides meanwhile what becomes of
those. So a settlement that comes while such a claim is under way, or is expected, stands ready for the next one, and
goes by itself when none has followed at once. Larger ones are cheap enough a job, and better go side by side.

Each of the two is what it would be alone: fenced by its own token, repeated by its own caller, and answered with its
own trouble only. docs/adr/0014-settle-and-claim-in-one-statement.md has what that saves.
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
_PASSES: Final = 3
"""Of the event loop, in which the next claim is expected: jobs that wait for nothing begin and end within them."""

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
        """Claims that are under way."""
        self._soon: asyncio.Handle | None = None
        """While the next claim is expected: what looks whether it has come."""
        self._ready: _Ready | None = None

    async def claim(self, want: Want) -> Look:
        """One look for jobs, which takes the settlement along that stands ready."""
        if want.limit > _FEW:
            return await self._claim(want)
        self._claiming += 1
        self._expect(0)
        try:
            ready, self._ready = self._ready, None
            if ready is None:
                return await self._claim(want)
            return await self._take_along(ready, want) or await self._claim(want)
        finally:
            self._claiming -= 1
            if not self._claiming:
                self._expect(_PASSES)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        """Settle with the next claim while one is under way or expected, else alone."""
        expected = self._claiming or self._soon is not None
        if not expected or self._ready is not None or len(settlements) > _FEW:
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
        except Exception:  # noqa: BLE001  # one of the two is at fault; alone, each meets its own trouble only
            ready.end(None)
            return None
        except BaseException:  # the claim's caller has given up, not the settlement's
            ready.end(None)
            raise
        ready.end(answers)
        return look

    def _expect(self, passes: int) -> None:
        """Look for the next claim during so many passes; then what stands ready goes alone."""
        if self._soon is not None:
            self._soon.cancel()
        self._soon = asyncio.get_running_loop().call_soon(self._pass, passes - 1) if passes else None

    def _pass(self, left: int) -> None:
        self._expect(left)
        if not left and self._ready is not None:
            self._ready.end(None)
            self._ready = None
