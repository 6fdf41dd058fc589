"""What the tests of the worker share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.unit.worker.bench import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A store in memory and its manager, current for the test."""
    bench = Bench()
    async with bench.manager:
        yield bench
    await bench.assert_sound()


@pytest.fixture
def freed() -> Iterator[asyncio.Event]:
    """Lets handlers go that ignore their cancellation: also when the test fails, which the loop's end waits for."""
    freed = asyncio.Event()
    yield freed
    freed.set()
