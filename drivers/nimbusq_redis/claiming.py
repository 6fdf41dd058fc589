"""Claim: look, and while there is nothing, wait for a bell or for what is due next, and look again."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final

from nimbusq.clock import SystemClock
from nimbusq.driver import Claimed, PutBack, Settlement, Want
from nimbusq.errors import StoreError
from nimbusq_redis.claims import Look, lane_args, read_look
from nimbusq_redis.completion import to_its_end
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
        look = await self._look(want, repeatable=True)
        while not (look.claimed.claims or look.claimed.lost) and self._clock.monotonic() < deadline:
            look_at, exactly = self._next_look(want, look)
            rung = await self._wait(
                want, look, min(look_at, deadline), exactly=exactly and look_at <= deadline
            )
            if rung is None and look_at > deadline:
                break
            look = await self._look(want, rung=rung)
        return look.claimed

    async def _look(self, want: Want, *, repeatable: bool = False, rung: str | None = None) -> Look:
        """Claim now. A call that may wait, and so be cancelled, runs to its end: what it took is handed back then."""
        watches = self._watches_until > self._clock.monotonic()
        call = self._link.run(
            "claim",
            want.token,
            want.limit,
            want.lease,
            "1" if repeatable else "",
            "1" if watches else "",
            rung or "",
            *lane_args(want.lanes),
        )
        if want.wait:
            reply = await to_its_end(call, lambda late: self._hand_back(read_look(late, want.token)))
        else:
            reply = await call
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

    async def _wait(self, want: Want, look: Look, until: float, *, exactly: bool) -> str | None:
        """Wait for a bell, and return its queue. Lanes that only a rate holds back are not listened to."""
        slowed = look.claimed.retry_after is not None
        queues = [lane.queue for lane in want.lanes if lane.limit > 0 and not (lane.rate and slowed)]
        while (left := until - self._clock.monotonic()) > 0:
            if not queues or want.limit <= 0:
                await self._clock.sleep(left)
                return None
            try:
                rung = await self._bell.wait(queues, left, exactly=exactly)
            except asyncio.CancelledError:
                with suppress(StoreError):  # then others look for themselves, within 10 s
                    await to_its_end(self._bell.pass_on(queues))
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
