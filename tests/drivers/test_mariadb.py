"""The database driver on MariaDB, which stands for MySQL too."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nimbusq.testing.suite import DriverSuite
from tests.drivers.database_env import DatabaseEnv, database_env


class TestMariadb(DriverSuite):
    examples = 50  # a program of 50 calls takes about a second

    @pytest.fixture
    async def env(self, mysql_url: str) -> AsyncIterator[DatabaseEnv]:
        async with database_env(mysql_url) as env:
            yield env
