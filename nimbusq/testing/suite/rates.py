"""Rates inside the claim: spent for jobs that start, and for nothing else."""

from __future__ import annotations

import pytest

from nimbusq.driver import Lane, PutBack
from nimbusq.envelope import Overlap, Rate
from nimbusq.testing.suite.hands import Hands
from nimbusq.testing.suite.needs import needs


def per_tick(hands: Hands, key: str = "mail", burst: int = 1, per: float = 1.0) -> Rate:
    return Rate(key=key, per_second=per / hands.tick, burst=burst)


def lane(rate: Rate) -> tuple[Lane, ...]:
    return (Lane(queue="probe", limit=10, rate=rate),)


class RateSuite:
    @needs("rates per key")
    async def test_a_lanes_rate_lets_the_burst_through_and_then_one_at_a_time(self, hands: Hands) -> None:
        await hands.push_many(6)
        lanes, long = lane(per_tick(hands, burst=3)), 60 * hands.tick
        assert len(await hands.claim(lanes=lanes, lease=long)) == 3
        claimed = await hands.collect(lanes=lanes)
        assert list(claimed.claims) == []
        assert claimed.retry_after == pytest.approx(hands.tick, abs=hands.tick / 2)
        assert await hands.counts() == (3, 0, 3), "what the rate holds back stays where it is"
        await hands.pass_ticks(1.1)
        assert len(await hands.claim(lanes=lanes, lease=long)) == 1
        await hands.pass_ticks(5)
        assert len(await hands.claim(lanes=lanes)) == 2, "a rest is no bigger burst, and no more were left"

    @needs("rates per key")
    async def test_an_empty_queue_spends_nothing(self, hands: Hands) -> None:
        lanes = lane(per_tick(hands, burst=2))
        for _ in range(5):
            claimed = await hands.collect(lanes=lanes)
            assert claimed.retry_after is None
        await hands.push_many(3)
        assert len(await hands.claim(lanes=lanes)) == 2

    @needs("rates per key")
    async def test_a_full_worker_spends_nothing(self, hands: Hands) -> None:
        await hands.push_many(3)
        lanes = lane(per_tick(hands, burst=2))
        assert await hands.claim(limit=0, lanes=lanes) == []
        assert len(await hands.claim(limit=1, lanes=lanes)) == 1
        assert len(await hands.claim(lanes=lanes)) == 1

    @needs("rates per key")
    async def test_one_rate_holds_for_all_processes(self, hands: Hands) -> None:
        await hands.push_many(4)
        lanes = lane(per_tick(hands, burst=2))
        other = await hands.other()
        assert len(await hands.claim(limit=1, lanes=lanes)) == 1
        assert len(await other.claim(lanes=lanes)) == 1
        assert await hands.claim(lanes=lanes) == []

    @needs("rates per key")
    async def test_a_lane_held_back_does_not_hold_the_next(self, hands: Hands) -> None:
        await hands.push_many(2, queue="slow")
        await hands.push_many(2, queue="fast")
        lanes = (Lane(queue="slow", limit=10, rate=per_tick(hands)), Lane(queue="fast", limit=10))
        queues = [claim.queue for claim in await hands.claim(lanes=lanes)]
        assert sorted(queues) == ["fast", "fast", "slow"]

    @needs("rates per key")
    async def test_a_jobs_own_rate_puts_it_back_uncounted(self, hands: Hands) -> None:
        rate = per_tick(hands, key="tenant-1")
        await hands.push_many(2, rate=rate)
        free = await hands.push()
        claims = await hands.claim()
        assert len(claims) == 2
        assert free.id in {claim.id for claim in claims}
        assert await hands.claim() == []
        await hands.pass_ticks(1.1)
        late = await hands.take()
        assert (late.attempt, late.releases) == (1, 0)

    @needs("rates per key")
    async def test_a_jobs_rate_that_holds_all_back_says_when(self, hands: Hands) -> None:
        await hands.push_many(2, rate=per_tick(hands, key="tenant-1"))
        await hands.take()
        await hands.push(rate=per_tick(hands, key="tenant-1"))
        claimed = await hands.collect()
        assert list(claimed.claims) == []
        assert claimed.retry_after == pytest.approx(hands.tick, abs=hands.tick / 2)

    @needs("rates per key")
    async def test_keys_are_apart(self, hands: Hands) -> None:
        await hands.push_many(2, rate=per_tick(hands, key="tenant-1"))
        await hands.push_many(2, rate=per_tick(hands, key="tenant-2"))
        assert len(await hands.claim()) == 2

    @needs("rates per key")
    async def test_a_jobs_rate_lets_its_burst_through(self, hands: Hands) -> None:
        await hands.push_many(5, rate=per_tick(hands, key="tenant-1", burst=3))
        assert len(await hands.claim()) == 3
        await hands.pass_ticks(1.1)
        assert len(await hands.claim()) == 1

    @needs("rates per key", "limiter")
    async def test_lanes_jobs_and_the_limiter_share_one_key_space(self, hands: Hands) -> None:
        limiter = hands.adapter.stores.limiter
        assert limiter
        rate = per_tick(hands, burst=2)
        assert (await limiter.reserve(rate)).granted == 1
        await hands.push_many(3)
        assert len(await hands.claim(lanes=lane(rate))) == 1
        assert (await limiter.reserve(rate)).granted == 0

    @needs("rates per key")
    async def test_an_ending_spends_nothing(self, hands: Hands) -> None:
        await hands.push_many(2, expires_in=hands.tick)
        await hands.pass_ticks(1.1)
        await hands.push()
        claims = await hands.claim(lanes=lane(per_tick(hands)))
        assert sorted(claim.ending is None for claim in claims) == [False, False, True]

    @needs("rates per key", "jobs without overlap")
    async def test_a_blocked_job_spends_nothing(self, hands: Hands) -> None:
        overlap = Overlap(key="k", release_after=0.1 * hands.tick)
        await hands.push(overlap=overlap)
        holder = await hands.take()
        rate = per_tick(hands, per=0.1)
        await hands.push(overlap=overlap, rate=rate)
        for _ in range(3):
            assert await hands.claim(lanes=lane(rate)) == []
            await hands.pass_ticks(0.2)
        await hands.finish(holder)
        assert len(await hands.claim()) == 1

    @needs("rates per key")
    async def test_a_rate_does_not_touch_attempts_of_put_back_jobs(self, hands: Hands) -> None:
        rate = per_tick(hands, key="tenant-1", burst=2)
        await hands.push(rate=rate)
        await hands.finish(await hands.take(), PutBack(0))
        claim = await hands.take()
        assert (claim.attempt, claim.releases) == (1, 1)
