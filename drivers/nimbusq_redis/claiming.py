"""Claim: look, and while there is nothing, wait for a bell or for what is due next, and look again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from nimbusq.clock import SystemClock
from nimbusq.driver import Claimed, PutBack, Settlement, Want
from nimbusq_redis.claims import Look, lane_args, read_look
from nimbusq_redis.doorbell import Doorbell
from nimbusq_redis.link import Link
from nimbusq_redis.settlements import settlement_args

_LOOK_EVERY: Final = 10.0
"""Seconds until a waiting claim looks again, whatever it was told; lua/lib/queues.lua counts on it (HORIZON)."""
_GRACE: Final = (0.5, 0.9)
"""Seconds after a timer that another worker watches until this one looks too, spread so that they do not come at
once: that worker may be dead."""

T = TypeVar("T")


class Claimer:
    """The claims of one adapter."""

    def __init__(self, link: Link, *, history: tuple[int, float], sweep_every: float) -> None:
        self._link = link
        self._bell = Doorbell(link)
        self._clock = SystemClock()
        self._history = history
        self._sweep_every = sweep_every
        self._next_sweep = self._clock.monotonic() + _spread(0, sweep_every)
        self._watches_until = 0.0  # on the monotonic clock: what this worker has promised to look at

    async def claim(self, want: Want) -> Claimed:
        """`nimbusq.driver.Adapter.claim`."""
        deadline = self._clock.monotonic() + want.wait
        await self._sweep_if_due()
        look = await self._look(want, repeatable=True)
        while not (look.claimed.claims or look.claimed.lost):
            if deadline - self._clock.monotonic() <= 0:
                break
            rung = await self._wait(want, look, deadline)
            look = await self._look(want, rung=rung)
        return look.claimed

    async def _look(self, want: Want, *, repeatable: bool = False, rung: str | None = None) -> Look:
        """Claim now. Runs to its end even if the caller is cancelled: what it took is handed back then."""
        watches = self._watches_until > self._clock.monotonic()
        reply = await _to_its_end(
            self._link.run(
                "claim",
                want.token,
                want.limit,
                want.lease,
                "1" if repeatable else "",
                "1" if watches else "",
                rung or "",
                *lane_args(want.lanes),
            ),
            lambda late: self._hand_back(read_look(late, want.token)),
        )
        look = read_look(reply, want.token)
        if look.watches and look.next_in is not None:
            self._watches_until = self._clock.monotonic() + look.next_in
        return look

    async def _wait(self, want: Want, look: Look, deadline: float) -> str | None:
        """Wait for a bell, until something may be due or the claim's own wait is over."""
        now = self._clock.monotonic()
        look_at = min(now + _LOOK_EVERY, now + max(want.lease, 0.1), deadline)
        exactly = False
        if look.next_in is not None and not look.watches:
            look_at = min(look_at, now + look.next_in + _spread(*_GRACE))
        if now < self._watches_until < look_at or (look.watches and look.next_in == 0):
            look_at, exactly = max(now, self._watches_until), True
        rate_wait = look.claimed.retry_after
        if rate_wait is not None and now + rate_wait < look_at:
            look_at, exactly = now + rate_wait, True
        queues = [lane.queue for lane in want.lanes if lane.limit > 0 and not (lane.rate and rate_wait)]
        return await self._until(queues if want.limit > 0 else [], look_at, exactly=exactly)

    async def _until(self, queues: list[str], look_at: float, *, exactly: bool) -> str | None:
        while (left := look_at - self._clock.monotonic()) > 0:
            if not queues:
                await self._clock.sleep(left)
                return None
            try:
                rung = await self._bell.wait(queues, left, exactly=exactly)
            except asyncio.CancelledError:
                await _to_its_end(self._bell.pass_on(queues))
                raise
            if rung is not None:
                return rung
        return None

    async def _hand_back(self, look: Look) -> None:
        settlements = [
            Settlement(claim=claim, outcome=PutBack(0, counted=False)) for claim in look.claimed.claims
        ]
        if settlements:
            await self._link.run("settle", *self._history, *settlement_args(settlements))

    async def _sweep_if_due(self) -> None:
        """Repair lost lease entries, once in a while, by whichever worker comes first."""
        if self._clock.monotonic() < self._next_sweep:
            return
        self._next_sweep = self._clock.monotonic() + self._sweep_every * _spread(1.0, 1.2)
        await self._link.run("sweep", int(self._sweep_every * 1000))


def _spread(low: float, high: float) -> float:
    """So that workers do not come at once."""
    return random.uniform(low, high)  # noqa: S311  # no secret


async def _to_its_end(call: Coroutine[Any, Any, T], undo: Any = None) -> T:
    """Await `call`; a caller that is cancelled meanwhile waits for its end, has it undone, and is cancelled then.

    The call has a deadline of its own, so that this cannot last.
    """
    task = asyncio.ensure_future(call)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001  # looked at below, where it is known whether anybody still waits
            break
    if cancelled is None:
        return task.result()
    if undo is not None and task.exception() is None:
        await _to_its_end(undo(task.result()))
    raise cancelled
