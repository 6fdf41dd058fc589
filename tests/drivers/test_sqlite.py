"""The database driver on SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nimbusq.testing.suite import DriverSuite
from tests.drivers.database_env import DatabaseEnv, database_env

pytestmark = pytest.mark.timeout(300)  # the state machine makes 10,000 calls


class TestSqlite(DriverSuite):
    @pytest.fixture
    async def env(self, tmp_path: Path) -> AsyncIterator[DatabaseEnv]:
        async with database_env(f"sqlite:///{tmp_path / 'jobs.db'}") as env:
            yield env
