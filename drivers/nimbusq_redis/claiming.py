"""Claim: look, and while there is nothing, wait for a bell or for what is due next, and look again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from nimbusq.clock import SystemClock
from nimbusq.driver import Claimed, PutBack, Settlement, Want, to_its_end
from nimbusq_redis.claims import Look, lane_args, read_look
from nimbusq_redis.doorbell import Doorbell
from nimbusq_redis.link import Link
from nimbusq_redis.settlements import settlement_args

_LOOK_EVERY: Final = 10.0
"""Seconds until a waiting claim looks again, whatever it was told; lua/lib/queues.lua counts on it (HORIZON)."""
_GRACE: Final = (0.5, 0.9)
"""Seconds after a timer that another worker watches until this one looks too, spread so that they do not come at
once: that worker may be dead."""


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
        look = await self._look(want)
        while not (look.claimed.claims or look.claimed.lost) and self._clock.monotonic() < deadline:
            look_at, exactly = self._next_look(want, look)
            look = await self._wait_and_look(
                want, look, min(look_at, deadline), exactly=exactly and look_at <= deadline
            )
        return look.claimed

    async def _look(self, want: Want) -> Look:
        """Claim now. A call that may wait, and so be cancelled, runs to its end: what it took is handed back then."""
        call = self._link.run("claim", *self._claim_args(want, repeatable=True))
        if want.wait:
            return self._read(want, await to_its_end(call, lambda late: self._hand_back(want, late)))
        return self._read(want, await call)

    async def _wait_and_look(self, want: Want, before: Look, until: float, *, exactly: bool) -> Look:
        """Wait for a bell, at most until then, and claim. Lanes that only a rate holds back are not listened to."""
        slowed = before.claimed.retry_after is not None
        queues = [lane.queue for lane in want.lanes if lane.limit > 0 and not (lane.rate and slowed)]
        left = max(0.0, until - self._clock.monotonic())
        if not queues or want.limit <= 0:
            await self._clock.sleep(left)
            return await self._look(want)
        alarm, args = self._bell.alarm(), self._claim_args(want, rung=True)
        waiting = asyncio.ensure_future(
            self._bell.wait_and_run(queues, alarm, left, "claim", *args, exactly=exactly)
        )
        try:
            return self._read(want, await asyncio.shield(waiting))
        except asyncio.CancelledError:
            await to_its_end(self._leave(want, alarm, waiting))
            raise

    async def _leave(self, want: Want, alarm: str, waiting: asyncio.Future[Any]) -> None:
        """Wait no more, and leave what came all the same to others.

        Raises StoreError where that is not known: the caller may ask again by the same token.
        """
        await self._bell.call_off(waiting, alarm)
        await self._hand_back(want, waiting.result())

    def _claim_args(self, want: Want, *, repeatable: bool = False, rung: bool = False) -> tuple[Any, ...]:
        watches = self._watches_until > self._clock.monotonic()
        flags = ("1" if flag else "" for flag in (repeatable, watches, rung))
        return (want.token, want.limit, want.lease, *flags, *lane_args(want.lanes))

    def _read(self, want: Want, reply: Sequence[Any]) -> Look:
        look = read_look(reply, want.token)
        if look.watches and look.next_in is not None:
            self._watches_until = self._clock.monotonic() + look.next_in
        return look

    def _next_look(self, want: Want, look: Look) -> tuple[float, bool]:
        """When to look again if no bell rings, on the monotonic clock, and whether to be there to the millisecond."""
        now = self._clock.monotonic()
        times = [(now + min(_LOOK_EVERY, want.lease), False)]
        if now < self._watches_until:
            times.append((self._watches_until, True))
        if look.next_in is not None:
            times.append((now + look.next_in + (0 if look.watches else _spread(*_GRACE)), look.watches))
        if look.claimed.retry_after is not None:
            times.append((now + look.claimed.retry_after, True))
        return min(times)

    async def _hand_back(self, want: Want, reply: Sequence[Any]) -> None:
        claims = read_look(reply, want.token).claimed.claims
        settlements = [Settlement(claim=claim, outcome=PutBack(0, counted=False)) for claim in claims]
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
