"""The fake clock: time passes by hand, and sleepers wake in order."""

from __future__ import annotations

import asyncio

from nimbusq.clock import Clock
from nimbusq.testing import FakeClock


async def test_time_stands_still_until_it_is_advanced() -> None:
    clock: Clock = FakeClock(start=1000.0)
    assert (clock.time(), clock.monotonic()) == (1000.0, 0.0)
    await clock.sleep(0)
    assert clock.monotonic() == 0.0


async def test_sleepers_wake_in_order_and_at_their_time() -> None:
    clock = FakeClock(start=1000.0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.time()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("late", 3.0), ("soon", 1.0), ("too late", 9.0), ("also soon", 1.0)):
            group.create_task(sleeper(name, seconds))
        await clock.advance(5)
        assert woken == [("soon", 1001.0), ("also soon", 1001.0), ("late", 1003.0)]
        assert clock.time() == 1005.0
        assert clock.next_wake == 4.0
        await clock.advance(4)
    assert woken[-1] == ("too late", 1009.0)
    assert clock.next_wake is None


async def test_a_woken_task_sleeps_again_within_one_advance() -> None:
    clock = FakeClock()
    ticks: list[float] = []

    async def ticker() -> None:
        for _ in range(3):
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        group.create_task(ticker())
        await clock.advance(10)
    assert ticks == [1.0, 2.0, 3.0]


async def test_tenths_add_up() -> None:
    clock = FakeClock()
    async with asyncio.TaskGroup() as group:
        sleeping = group.create_task(clock.sleep(0.3))
        for _ in range(3):
            await clock.advance(0.1)
        assert sleeping.done()


async def test_a_cancelled_sleeper_holds_nothing_up() -> None:
    clock = FakeClock()
    sleeping = asyncio.ensure_future(clock.sleep(1))
    await asyncio.sleep(0)
    sleeping.cancel()
    await asyncio.gather(sleeping, return_exceptions=True)
    assert clock.next_wake is None
    await clock.advance(2)
    assert clock.monotonic() == 2.0
