"""The redis driver: the whole suite of `nimbusq.testing.suite` on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nimbusq.driver import PutBack, Retry
from nimbusq.testing.suite import DriverSuite
from nimbusq.testing.suite.hands import Hands
from tests.drivers.redis_env import RedisEnv, redis_env

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]  # 10,000 random calls, each a round trip or more


class TestRedis(DriverSuite):
    @pytest.fixture
    async def env(self, redis_url: str) -> AsyncIterator[RedisEnv]:
        async with redis_env(redis_url) as env:
            yield env

    @pytest.mark.parametrize("way", ["retry", "release", "lost", "paused", "delayed"])
    async def test_whatever_happens_to_a_job_it_keeps_its_priority(self, hands: Hands, way: str) -> None:
        jobs = hands.adapter.stores.jobs
        assert jobs is not None
        urgent = await hands.push(priority=1, delay=5.0 if way == "delayed" else 0.0)
        match way:
            case "retry":
                await hands.finish(await hands.take(), Retry(0.0, "again"))
            case "release":
                await hands.finish(await hands.take(), PutBack(0.0))
            case "lost":
                await hands.take()
                await hands.pass_ticks(4)
            case "paused":
                assert await jobs.pause(urgent.id)
                assert await jobs.resume(urgent.id)
            case "delayed":
                await hands.env.advance(6)
        await hands.push(priority=2)
        (first,) = await hands.claim(limit=1)
        assert first.id == urgent.id
