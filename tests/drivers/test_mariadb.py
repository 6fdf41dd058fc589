"""The database driver on MariaDB, which stands for MySQL too."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nimbusq.testing.suite import DriverSuite
from tests.drivers.database_env import DatabaseEnv, database_env

pytestmark = pytest.mark.timeout(300)  # the state machine makes 10,000 calls


class TestMariadb(DriverSuite):
    examples = 100  # of programs; each takes about a third of a second

    @pytest.fixture
    async def env(self, mysql_url: str) -> AsyncIterator[DatabaseEnv]:
        async with database_env(mysql_url) as env:
            yield env
