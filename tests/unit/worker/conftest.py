"""What the tests of the worker share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.worker.bench import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A store in memory and its manager, current for the test."""
    bench = Bench()
    async with bench.manager:
        yield bench
    await bench.assert_sound()
