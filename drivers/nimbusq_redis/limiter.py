"""Rates for the whole fleet (see lua/lib/rate.lua)."""

from __future__ import annotations

from nimbusq.driver import Reserved
from nimbusq.envelope import Rate
from nimbusq_redis.entries import rate_fields
from nimbusq_redis.link import Link


class RedisJobLimiter:
    """`nimbusq.driver.JobLimiter` in Redis."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def reserve(self, rate: Rate, n: int = 1) -> Reserved:
        granted, wait = await self._link.run("rate_reserve", *rate_fields(rate).values(), n)
        return Reserved(granted, wait / 1e6)

    async def give_back(self, rate: Rate, n: float = 1) -> None:
        if n > 0:
            await self._link.run("rate_reserve", *rate_fields(rate).values(), -n)
