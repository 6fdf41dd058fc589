"""The redis driver: the whole suite of `nimbusq.testing.suite` on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nimbusq.testing.suite import DriverSuite
from tests.drivers.redis_env import RedisEnv, redis_env

pytestmark = pytest.mark.redis


class TestRedis(DriverSuite):
    @pytest.fixture
    async def env(self, redis_url: str) -> AsyncIterator[RedisEnv]:
        async with redis_env(redis_url) as env:
            yield env
