"""The limiter: the generic cell rate algorithm, for the whole fleet."""

from __future__ import annotations

import asyncio

import pytest

from nimbusq.driver import JobLimiter, Reserved
from nimbusq.testing.suite.hands import Hands
from nimbusq.testing.suite.needs import needs
from nimbusq.testing.suite.rates import per_tick


def store_of(hands: Hands) -> JobLimiter:
    limiter = hands.adapter.stores.limiter
    assert limiter is not None
    return limiter


class LimiterSuite:
    @needs("limiter")
    async def test_the_burst_is_granted_and_then_one_an_interval(self, hands: Hands) -> None:
        limiter, rate = store_of(hands), per_tick(hands, burst=3)
        assert await limiter.reserve(rate, 3) == Reserved(3)
        reserved = await limiter.reserve(rate)
        assert reserved.granted == 0
        assert reserved.retry_after == pytest.approx(hands.tick, abs=hands.tick / 2)
        await hands.pass_ticks(1.1)
        assert await limiter.reserve(rate) == Reserved(1)
        assert (await limiter.reserve(rate)).granted == 0

    @needs("limiter")
    async def test_what_can_be_granted_is_granted(self, hands: Hands) -> None:
        limiter, rate = store_of(hands), per_tick(hands, burst=2)
        reserved = await limiter.reserve(rate, 5)
        assert reserved.granted == 2
        assert 0 < reserved.retry_after <= hands.tick

    @needs("limiter")
    async def test_a_rest_does_not_pile_up_beyond_the_burst(self, hands: Hands) -> None:
        limiter, rate = store_of(hands), per_tick(hands, burst=2)
        await limiter.reserve(rate, 2)
        await hands.pass_ticks(50)
        assert (await limiter.reserve(rate, 10)).granted == 2

    @needs("limiter")
    async def test_what_is_given_back_can_be_granted_again(self, hands: Hands) -> None:
        limiter, rate = store_of(hands), per_tick(hands, burst=3)
        await limiter.reserve(rate, 3)
        await limiter.give_back(rate, 2)
        assert (await limiter.reserve(rate, 5)).granted == 2

    @needs("limiter")
    async def test_a_part_of_a_start_can_be_given_back(self, hands: Hands) -> None:
        limiter, rate = store_of(hands), per_tick(hands, burst=1)
        await limiter.reserve(rate)
        await limiter.give_back(rate, 0.75)
        refused = await limiter.reserve(rate)
        assert refused.granted == 0
        assert refused.retry_after == pytest.approx(0.25 * hands.tick, abs=0.1 * hands.tick)

    @needs("limiter")
    async def test_giving_back_adds_nothing_to_the_burst(self, hands: Hands) -> None:
        limiter, rate = store_of(hands), per_tick(hands, burst=2)
        await limiter.give_back(rate, 5)
        assert (await limiter.reserve(rate, 5)).granted == 2

    @needs("limiter")
    async def test_keys_are_apart(self, hands: Hands) -> None:
        limiter = store_of(hands)
        assert (await limiter.reserve(per_tick(hands, "a"))).granted == 1
        assert (await limiter.reserve(per_tick(hands, "b"))).granted == 1
        assert (await limiter.reserve(per_tick(hands, "a"))).granted == 0

    @needs("limiter")
    async def test_a_fast_rate_over_time(self, hands: Hands) -> None:
        """RL4: no more than burst + rate x time over all processes."""
        sides = [store_of(hands), store_of(await hands.other())]
        rate = per_tick(hands, burst=1, per=20)
        granted = 0
        for n in range(50):
            granted += (await sides[n % 2].reserve(rate)).granted
            await hands.pass_ticks(0.02)
        assert granted <= 1 + 20 * 50 * 0.02 + 4
        assert granted >= 10

    @needs("limiter")
    async def test_concurrent_callers_share_one_burst(self, hands: Hands) -> None:
        sides = [store_of(hands), store_of(await hands.other())]
        rate = per_tick(hands, burst=10)
        answers = await asyncio.gather(*(sides[n % 2].reserve(rate) for n in range(30)))
        assert sum(answer.granted for answer in answers) == 10
