"""Fixtures for the tests of the drivers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to PostgreSQL that looks at the others."""
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()
