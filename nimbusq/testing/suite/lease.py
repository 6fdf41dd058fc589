"""Leases: renewed by their holder, taken back when they end, and never two holders."""

from __future__ import annotations

from nimbusq.driver import Done, Ending, PutBack, Renewal, Retry, SettleStatus
from nimbusq.testing.suite.hands import Hands, ids, settle_all
from nimbusq.testing.suite.needs import needs


class LeaseSuite:
    @needs("timed leases")
    async def test_a_lease_holds_until_its_end(self, hands: Hands) -> None:
        await hands.push()
        await hands.take()
        await hands.pass_ticks(2)
        assert await hands.is_idle()

    @needs("timed leases", "atomic steps")
    async def test_a_lost_job_is_claimed_again_and_its_run_counts(self, hands: Hands) -> None:
        sent = await hands.push()
        first = await hands.take()
        await hands.pass_ticks(3.1)
        claimed = await hands.collect()
        (lost,) = claimed.lost
        (second,) = claimed.claims
        assert (lost.id, lost.queue, lost.attempt, lost.envelope) == (sent.id, "probe", 1, sent)
        assert (second.id, second.attempt, second.reclaimed) == (sent.id, 2, True)
        assert second.fence > first.fence
        assert second.token != first.token
        assert await hands.counts() == (0, 0, 1)

    @needs("timed leases", "fencing")
    async def test_a_loser_can_neither_settle_nor_extend(self, hands: Hands) -> None:
        await hands.push()
        loser = await hands.take()
        await hands.pass_ticks(3.1)
        winner = await hands.take()
        for outcome in (Done(), Retry(0, "late"), PutBack(0)):
            assert (await hands.settle(loser, outcome)).status is SettleStatus.LOST
        assert await hands.extend(loser) is Renewal.LOST
        assert await hands.extend(winner) is Renewal.RENEWED
        await hands.finish(winner)

    @needs("timed leases", "atomic steps")
    async def test_a_lost_job_is_taken_back_however_many_wait(self, hands: Hands) -> None:
        """A backlog must not hide the runs of a dead worker."""
        sent = await hands.push()
        await hands.take()
        await hands.pass_ticks(3.1)
        await hands.push_many(5)
        claimed = await hands.collect(limit=2)
        assert [lost.id for lost in claimed.lost] == [sent.id]

    @needs("timed leases", "fencing")
    async def test_an_ended_job_is_lost_to_its_earlier_holder(self, hands: Hands) -> None:
        await hands.push()
        loser = await hands.take()
        await hands.pass_ticks(3.1)
        await hands.finish(await hands.take())
        assert (await hands.settle(loser)).status is SettleStatus.LOST
        assert await hands.extend(loser) is Renewal.LOST
        assert await hands.is_idle()

    @needs("timed leases", "atomic steps")
    async def test_extending_keeps_the_job(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        for _ in range(4):
            await hands.pass_ticks(2)
            assert await hands.extend(claim) is Renewal.RENEWED
        assert await hands.is_idle()
        await hands.finish(claim)

    @needs("timed leases", "atomic steps")
    async def test_extending_never_shortens_a_lease(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        assert await hands.extend(claim, ticks=0.5) is Renewal.RENEWED
        await hands.pass_ticks(2)
        assert await hands.is_idle()

    @needs("timed leases", "atomic steps")
    async def test_an_ended_lease_can_be_renewed_until_somebody_takes_it(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        await hands.pass_ticks(3.1)
        assert await hands.extend(claim) is Renewal.RENEWED
        assert await hands.is_idle()
        await hands.finish(claim)

    @needs("timed leases", "atomic steps")
    async def test_an_ended_lease_can_be_settled_until_somebody_takes_it(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        await hands.pass_ticks(3.1)
        await hands.finish(claim)
        assert await hands.is_idle()

    @needs("timed leases", "atomic steps")
    async def test_extend_answers_each_claim_in_order(self, hands: Hands) -> None:
        await hands.push_many(3)
        claims = await hands.claim()
        await hands.finish(claims[1])
        renewals = await hands.adapter.extend(claims, lease=3 * hands.tick)
        assert list(renewals) == [Renewal.RENEWED, Renewal.LOST, Renewal.RENEWED]
        assert list(await hands.adapter.extend([], lease=hands.tick)) == []

    @needs("timed leases", "atomic steps")
    async def test_a_limit_of_nothing_collects_lost_leases(self, hands: Hands) -> None:
        sent = await hands.push_many(2)
        await hands.claim()
        await hands.pass_ticks(3.1)
        claimed = await hands.collect(limit=0)
        assert sorted(lost.id for lost in claimed.lost) == sorted(ids(sent))
        assert list(claimed.claims) == []
        assert await hands.counts() == (2, 0, 0)
        assert {claim.attempt for claim in await hands.claim()} == {2}

    @needs("timed leases", "atomic steps")
    async def test_a_last_run_that_is_lost_ends_as_lost(self, hands: Hands) -> None:
        sent = await hands.push(max_attempts=2)
        await hands.take()
        await hands.pass_ticks(3.1)
        await hands.take()
        await hands.pass_ticks(3.1)
        claimed = await hands.collect(limit=0)
        (ending,) = claimed.claims
        assert [lost.id for lost in claimed.lost] == [sent.id]
        assert (ending.id, ending.ending, ending.attempt) == (sent.id, Ending.LOST, 2)
        assert ending.fence == 3
        await hands.fail(ending)
        assert await hands.is_idle()
        assert await hands.counts() == (0, 0, 0)

    @needs("timed leases", "atomic steps")
    async def test_a_job_without_retries_that_was_lost_never_runs_again(self, hands: Hands) -> None:
        await hands.push(max_attempts=1)
        await hands.take()
        await hands.pass_ticks(3.1)
        assert (await hands.take_ending()).ending is Ending.LOST
        assert await hands.is_idle()

    @needs("timed leases", "atomic steps")
    async def test_more_lost_leases_than_one_call_takes_back(self, hands: Hands) -> None:
        sent = await hands.push_many(120)
        await hands.claim_all()
        await hands.pass_ticks(3.1)
        claims = await hands.claim_all(limit=40)
        assert sorted(ids(claims)) == sorted(ids(sent))
        assert {claim.attempt for claim in claims} == {2}
        await settle_all(hands.adapter, claims)
        assert await hands.counts() == (0, 0, 0)

    @needs("timed leases", "atomic steps")
    async def test_a_fence_rises_with_every_claim(self, hands: Hands) -> None:
        await hands.push(max_attempts=10)
        fences = []
        for outcome in (Retry(0, "a"), PutBack(0), PutBack(0, counted=False), Retry(0, "b")):
            claim = await hands.take()
            fences.append(claim.fence)
            await hands.finish(claim, outcome)
        assert fences == [1, 2, 3, 4]
