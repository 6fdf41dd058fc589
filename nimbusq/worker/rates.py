"""Rates for lanes whose driver has none: tokens are reserved just before a claim, and what was not used goes back.

A claim that holds tokens does not wait, so an idle worker holds none.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nimbusq.clock import Clock
from nimbusq.driver import Claim, JobLimiter, Lane, Reserved
from nimbusq.envelope import Rate
from nimbusq.errors import StoreError
from nimbusq.worker.pace import Pace

log = logging.getLogger("nimbusq.worker")

LOOK_EVERY: Final = 0.5
"""Seconds between the looks of an idle worker at a rated queue of a driver without rates."""
AWAY_FOR: Final = 1.0
"""Seconds until a limiter that could not be reached is asked again."""


@dataclass(frozen=True, slots=True)
class _Tokens:
    limiter: JobLimiter
    rate: Rate
    granted: int
    asked_at: float


@dataclass(frozen=True, slots=True)
class Admitted:
    """Lanes cut to what their rates allow now. retry_after: seconds until a rate that is spent allows more."""

    lanes: tuple[Lane, ...]
    reserved: Mapping[str, _Tokens]
    retry_after: float | None = None


class RateGate:
    """Reserves from `own` for queues whose limit is per process, from `shared` for the others.

    shared is None where the driver itself spends rates with its claims. While it cannot be reached no job of its
    queues starts; other queues are served all the same.
    """

    def __init__(
        self, shared: JobLimiter | None, own: JobLimiter, per_process: frozenset[str], clock: Clock
    ) -> None:
        self._shared = shared
        self._own = own
        self._per_process = per_process
        self._clock = clock
        self._pace = Pace()

    def _limiter(self, lane: Lane) -> JobLimiter | None:
        if lane.rate is None or not lane.limit:
            return None
        return self._own if lane.queue in self._per_process else self._shared

    def covers(self, lanes: Sequence[Lane]) -> bool:
        """Some of these lanes need tokens from here."""
        return any(self._limiter(lane) is not None for lane in lanes)

    async def admit(self, lanes: Sequence[Lane]) -> Admitted:
        """Reserve tokens for each rated lane, at most its free slots."""
        admitted: list[Lane] = []
        reserved: dict[str, _Tokens] = {}
        waits: list[float] = []
        for lane in lanes:
            limiter, rate = self._limiter(lane), lane.rate
            if limiter is None or rate is None:
                admitted.append(lane)
                continue
            asked_at = self._clock.monotonic()
            answer = await self._reserve(limiter, rate, min(lane.limit, rate.burst))
            admitted.append(replace(lane, limit=answer.granted, rate=None))
            if answer.granted:
                reserved[lane.queue] = _Tokens(limiter, rate, answer.granted, asked_at)
            else:
                waits.append(answer.retry_after)
        return Admitted(tuple(admitted), reserved, min(waits, default=None))

    async def _reserve(self, limiter: JobLimiter, rate: Rate, n: int) -> Reserved:
        try:
            reserved = await limiter.reserve(rate, n)
        except StoreError as error:
            self._pace.complain(log, "no job starts at the rate %s: %s", rate.key, error)
            return Reserved(0, AWAY_FOR)
        self._pace.reset()
        return reserved

    async def settle_up(self, admitted: Admitted, claims: Sequence[Claim]) -> None:
        """Give back the tokens that no claimed job uses, less those that came in meanwhile: had they stayed where
        they were, these would have run over, and another worker may have taken them."""
        used = Counter(claim.queue for claim in claims if claim.ending is None)
        for queue, tokens in admitted.reserved.items():
            came_in = (self._clock.monotonic() - tokens.asked_at) * tokens.rate.per_second
            if (unused := tokens.granted - used[queue] - came_in) > 0:
                await self._give_back(tokens, unused)

    async def _give_back(self, tokens: _Tokens, unused: float) -> None:
        try:
            await tokens.limiter.give_back(tokens.rate, unused)
        except StoreError as error:
            self._pace.complain(
                log, "%.1f starts at the rate %s are lost: %s", unused, tokens.rate.key, error
            )


class LocalLimiter:
    """A JobLimiter of this process: the generic cell rate algorithm on the local clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._arrivals: dict[str, float] = {}
        """Rate key -> theoretical arrival time of the next job."""

    async def reserve(self, rate: Rate, n: int = 1) -> Reserved:
        now, interval = self._clock.monotonic(), 1 / rate.per_second
        arrival = max(now, self._arrivals.get(rate.key, now))
        room = now + rate.burst * interval - arrival
        granted = max(0, min(n, int(room / interval + 1e-9)))
        self._arrivals[rate.key] = arrival + granted * interval
        if granted == n:
            return Reserved(granted)
        return Reserved(granted, max(0.0, arrival + (granted + 1 - rate.burst) * interval - now))

    async def give_back(self, rate: Rate, n: float = 1) -> None:
        if rate.key in self._arrivals:
            self._arrivals[rate.key] -= n / rate.per_second
