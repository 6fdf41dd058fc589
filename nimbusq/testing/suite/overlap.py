"""Overlap keys: at most `limit` running jobs per (name, key); the others wait without an attempt."""

from __future__ import annotations

from typing import Any

from nimbusq.driver import Ending, Retry
from nimbusq.envelope import Overlap
from nimbusq.testing.suite.hands import Hands, settle_all
from nimbusq.testing.suite.needs import needs


def overlap(hands: Hands, **fields: Any) -> Overlap:
    defaults = {"key": "account-7", "release_after": hands.tick, "expire_after": 60 * hands.tick}
    return Overlap(**{**defaults, **fields})


class OverlapSuite:
    @needs("jobs without overlap")
    async def test_one_runs_and_the_other_is_put_back_without_an_attempt(self, hands: Hands) -> None:
        await hands.push_many(2, overlap=overlap(hands))
        first = await hands.take()
        assert await hands.counts() == (0, 1, 1)
        await hands.finish(first)
        assert await hands.claim() == [], "not before release_after"
        await hands.pass_ticks(1.1)
        second = await hands.take()
        assert (second.attempt, second.releases) == (1, 1)
        assert second.id != first.id

    @needs("jobs without overlap")
    async def test_a_blocked_job_does_not_hide_others(self, hands: Hands) -> None:
        await hands.push_many(3, overlap=overlap(hands))
        free = await hands.push()
        other = await hands.push(overlap=overlap(hands, key="account-8"))
        claims = await hands.claim(limit=3)
        assert {free.id, other.id} < {claim.id for claim in claims}
        assert len(claims) == 3
        assert await hands.counts() == (0, 2, 3)

    @needs("jobs without overlap")
    async def test_up_to_the_limit_run_together(self, hands: Hands) -> None:
        await hands.push_many(4, overlap=overlap(hands, limit=2))
        assert len(await hands.claim()) == 2
        await hands.pass_ticks(1.1)
        assert await (await hands.other()).claim() == []

    @needs("jobs without overlap")
    async def test_the_same_key_of_another_job_name_is_free(self, hands: Hands) -> None:
        await hands.push(overlap=overlap(hands))
        await hands.push(overlap=overlap(hands), name="Other")
        assert len(await hands.claim()) == 2

    @needs("jobs without overlap")
    async def test_the_key_binds_over_all_queues(self, hands: Hands) -> None:
        await hands.push(overlap=overlap(hands))
        await hands.take()
        await hands.push(overlap=overlap(hands), queue="elsewhere")
        elsewhere = hands.want().lanes[0]
        assert await hands.claim(lanes=(type(elsewhere)(queue="elsewhere", limit=1),)) == []

    @needs("jobs without overlap")
    async def test_a_retry_frees_the_key_while_it_waits(self, hands: Hands) -> None:
        await hands.push(overlap=overlap(hands))
        await hands.finish(await hands.take(), Retry(5 * hands.tick, "boom"))
        second = await hands.push(overlap=overlap(hands))
        assert (await hands.take()).id == second.id

    @needs("jobs without overlap", "timed leases")
    async def test_a_lost_lease_frees_the_key(self, hands: Hands) -> None:
        lost = await hands.push(overlap=overlap(hands), max_attempts=1)
        await hands.take()
        await hands.pass_ticks(3.1)
        second = await hands.push(overlap=overlap(hands))
        claims = {claim.id: claim for claim in await hands.claim()}
        assert claims[lost.id].ending is Ending.LOST
        assert claims[second.id].ending is None, "an ending does not hold the key"

    @needs("jobs without overlap", "timed leases")
    async def test_a_renewed_lease_keeps_the_key(self, hands: Hands) -> None:
        await hands.push_many(2, overlap=overlap(hands))
        first = await hands.take()
        for _ in range(3):
            await hands.pass_ticks(2)
            await hands.extend(first)
            assert await hands.claim() == []
        await hands.finish(first)
        await hands.pass_ticks(1.1)
        assert (await hands.take()).releases >= 3

    @needs("jobs without overlap", "timed leases")
    async def test_a_holder_counts_for_expire_after_since_its_last_renewal(self, hands: Hands) -> None:
        await hands.push(overlap=overlap(hands, expire_after=2 * hands.tick))
        await hands.push(overlap=overlap(hands, expire_after=2 * hands.tick))
        await hands.take(lease=50 * hands.tick)
        await hands.pass_ticks(1.1)
        assert await hands.claim() == []
        await hands.pass_ticks(1.1)
        assert len(await hands.claim()) == 1, "the first one's hold has expired, its lease has not"

    @needs("jobs without overlap")
    async def test_a_job_that_was_blocked_too_often_is_ended(self, hands: Hands) -> None:
        await hands.push(overlap=overlap(hands))
        holder = await hands.take(lease=50 * hands.tick)
        blocked = await hands.push(overlap=overlap(hands, max_releases=2))
        for _ in range(2):
            assert await hands.claim() == []
            await hands.pass_ticks(1.1)
        ending = await hands.take_ending()
        assert (ending.id, ending.ending) == (blocked.id, Ending.BLOCKED)
        assert (ending.attempt, ending.releases) == (0, 2)
        await hands.fail(ending)
        await hands.finish(holder)
        assert await hands.counts() == (0, 0, 0)

    @needs("jobs without overlap")
    async def test_a_job_that_may_not_wait_at_all_is_ended_at_once(self, hands: Hands) -> None:
        await hands.push(overlap=overlap(hands))
        await hands.take()
        await hands.push(overlap=overlap(hands, max_releases=0))
        assert (await hands.take_ending()).ending is Ending.BLOCKED

    @needs("jobs without overlap")
    async def test_every_blocked_job_runs_in_the_end(self, hands: Hands) -> None:
        await hands.push_many(6, overlap=overlap(hands, limit=2))
        runs = 0
        while claims := await hands.claim():
            assert len(claims) <= 2
            runs += len(claims)
            await settle_all(hands.adapter, claims)
            await hands.pass_ticks(1.1)
        assert runs == 6

    @needs("jobs without overlap", "jobs")
    async def test_holders_tells_who_runs(self, hands: Hands) -> None:
        jobs = hands.adapter.stores.jobs
        assert jobs
        await hands.push_many(2, overlap=overlap(hands))
        assert list(await jobs.holders("Probe", "account-7")) == []
        claim = await hands.take()
        assert list(await jobs.holders("Probe", "account-7")) == [claim.id]
        await hands.finish(claim)
        assert list(await jobs.holders("Probe", "account-7")) == []
