"""Schedules: a tick fires once, whoever comes first, and never backwards."""

from __future__ import annotations

import asyncio

import pytest

from nimbusq.driver import Schedules
from nimbusq.testing.suite.hands import Hands, ids
from nimbusq.testing.suite.needs import needs


def store_of(hands: Hands) -> Schedules:
    schedules = hands.adapter.stores.schedules
    assert schedules is not None
    return schedules


class ScheduleSuite:
    @needs("schedules")
    async def test_a_new_schedule_starts_now(self, hands: Hands) -> None:
        state = await store_of(hands).register("nightly", {"cron": "0 0 * * *"})
        now = await store_of(hands).now()
        assert (state.name, state.paused, dict(state.spec)) == ("nightly", False, {"cron": "0 0 * * *"})
        assert state.last_tick == pytest.approx(now, abs=hands.tick / 2)
        assert now > 1_000_000_000

    @needs("schedules")
    async def test_the_stores_clock_is_the_one_that_passes(self, hands: Hands) -> None:
        before = await store_of(hands).now()
        await hands.pass_ticks(3)
        assert await store_of(hands).now() - before == pytest.approx(3 * hands.tick, abs=hands.tick / 2)

    @needs("schedules")
    async def test_a_tick_fires_once(self, hands: Hands) -> None:
        schedules = store_of(hands)
        now = (await schedules.register("nightly", {})).last_tick or 0.0
        first = hands.envelope()
        pushed = await schedules.fire("nightly", now + 60, first)
        assert pushed
        assert (pushed.id, pushed.holder) == (first.id, None)
        assert await schedules.fire("nightly", now + 60, hands.envelope()) is None
        assert await schedules.fire("nightly", now + 30, hands.envelope()) is None
        assert ids(await hands.claim()) == [first.id]
        assert await schedules.fire("nightly", now + 120, hands.envelope()) is not None
        (state,) = await schedules.list()
        assert state.last_tick == pytest.approx(now + 120, abs=0.001)

    @needs("schedules")
    async def test_of_many_schedulers_one_fires_the_tick(self, hands: Hands) -> None:
        """B12."""
        sides = [store_of(hands), store_of(await hands.other())]
        now = (await sides[0].register("nightly", {})).last_tick or 0.0
        for tick in range(1, 4):
            answers = await asyncio.gather(
                *(sides[n % 2].fire("nightly", now + tick, hands.envelope()) for n in range(6))
            )
            assert len([answer for answer in answers if answer]) == 1
        assert await hands.counts() == (3, 0, 0)

    @needs("schedules")
    async def test_registering_again_keeps_the_tick_and_takes_the_new_description(self, hands: Hands) -> None:
        schedules = store_of(hands)
        now = (await schedules.register("nightly", {"every": 60})).last_tick or 0.0
        await schedules.fire("nightly", now + 60, hands.envelope())
        await hands.pass_ticks(1)
        state = await schedules.register("nightly", {"every": 90})
        assert state.last_tick == pytest.approx(now + 60, abs=0.001)
        assert dict(state.spec) == {"every": 90}

    @needs("schedules")
    async def test_a_paused_schedule_does_not_fire(self, hands: Hands) -> None:
        schedules = store_of(hands)
        now = (await schedules.register("nightly", {})).last_tick or 0.0
        assert await schedules.pause("nightly", True) is True
        assert await schedules.fire("nightly", now + 60, hands.envelope()) is None
        assert (await schedules.register("nightly", {})).paused is True
        assert await schedules.pause("nightly", False) is True
        assert await schedules.fire("nightly", now + 60, hands.envelope()) is not None
        assert await schedules.pause("unknown", True) is False

    @needs("schedules")
    async def test_what_a_paused_schedule_missed_is_not_caught_up(self, hands: Hands) -> None:
        schedules = store_of(hands)
        await schedules.register("nightly", {})
        await schedules.pause("nightly", True)
        await hands.pass_ticks(3)
        await schedules.pause("nightly", False)
        now = await schedules.now()
        (state,) = await schedules.list()
        assert state.last_tick == pytest.approx(now, abs=hands.tick / 2)
        await hands.pass_ticks(3)
        await schedules.pause("nightly", False)
        (again,) = await schedules.list()
        assert again.last_tick == state.last_tick, "it was not paused"

    @needs("schedules")
    async def test_schedules_are_listed_and_forgotten(self, hands: Hands) -> None:
        schedules = store_of(hands)
        for name in ("b", "a"):
            await schedules.register(name, {})
        assert sorted(state.name for state in await schedules.list()) == ["a", "b"]
        assert await schedules.forget("a") is True
        assert await schedules.forget("a") is False
        assert [state.name for state in await schedules.list()] == ["b"]
