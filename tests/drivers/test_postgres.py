"""The database driver on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nimbusq.testing.suite import DriverSuite
from tests.drivers.database_env import DatabaseEnv, database_env

pytestmark = pytest.mark.timeout(300)  # the state machine makes 10,000 calls


class TestPostgres(DriverSuite):
    @pytest.fixture
    async def env(self, postgres_url: str) -> AsyncIterator[DatabaseEnv]:
        async with database_env(postgres_url) as env:
            yield env
