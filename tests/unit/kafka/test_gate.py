"""The revoke barrier, the bell, and the brokers' clock."""

from __future__ import annotations

import asyncio

import pytest

from nimbusq.testing.clock import FakeClock
from nimbusq_kafka.broker_clock import FRESH, BrokerClock
from nimbusq_kafka.gate import Gate
from nimbusq_kafka.news import News, within


async def test_closing_waits_for_the_steps_inside_and_lets_no_other_in() -> None:
    gate, done, log = Gate(), asyncio.Event(), list[str]()

    async def step(name: str, until: asyncio.Event) -> None:
        async with gate.step():
            log.append(f"{name} in")
            await until.wait()
            log.append(f"{name} out")

    async def close() -> None:
        await gate.close()
        log.append("closed")

    gate.open()
    async with asyncio.TaskGroup() as group:
        group.create_task(step("first", done))
        await asyncio.sleep(0)
        group.create_task(close())
        await asyncio.sleep(0)
        group.create_task(step("second", done))
        await asyncio.sleep(0)
        assert log == ["first in"]
        assert not gate.is_open
        done.set()
        async with asyncio.timeout(1):
            while "closed" not in log:
                await asyncio.sleep(0)
        assert log == ["first in", "first out", "closed"]
        gate.open()
    assert log[3:] == ["second in", "second out"]


async def test_a_step_that_fails_leaves_the_gate() -> None:
    gate = Gate()
    gate.open()
    with pytest.raises(ZeroDivisionError):
        async with gate.step():
            _ = 1 / 0
    async with asyncio.timeout(1):
        await gate.close()


async def test_it_is_closed_at_first() -> None:
    gate = Gate()

    async def step() -> None:
        async with gate.step():
            return

    assert not await within(0.01, step())


async def test_a_ring_between_listening_and_waiting_is_heard() -> None:
    news = News()
    heard = news.listen()
    news.ring()
    assert await within(0, heard.wait())
    assert not await within(0.01, news.listen().wait()), "the next one rings later"


def test_the_brokers_time_is_the_greatest_that_surely_has_passed() -> None:
    machine = FakeClock()
    clock = BrokerClock(machine)
    assert clock.now() == machine.time()
    assert clock.stale

    broker = machine.time() + 500.0
    clock.saw(broker - 0.020)  # this answer took 20 ms
    assert clock.now() == broker - 0.020
    clock.saw(broker - 0.003)
    assert clock.now() == broker - 0.003
    clock.saw(broker - 0.050)
    assert clock.now() == broker - 0.003, "a slow answer teaches nothing"
    assert not clock.stale


async def test_what_was_learnt_is_forgotten_in_the_end() -> None:
    machine = FakeClock()
    clock = BrokerClock(machine)
    clock.saw(machine.time() + 100.0)
    await machine.advance(FRESH / 2 + 1)
    assert clock.stale
    clock.saw(machine.time() + 99.0)
    assert clock.now() == machine.time() + 100.0
    await machine.advance(FRESH)
    clock.saw(machine.time() + 99.0)
    assert clock.now() == machine.time() + 99.0, "the brokers' clock has been set back"
