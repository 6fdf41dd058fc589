"""Settle: each claim once, with all that follows from it."""

from __future__ import annotations

from nimbusq.driver import Cancelled, Done, Failed, Outcome, Retry, Settlement, SettleStatus
from nimbusq.testing.suite.hands import Hands, ids, new_id
from nimbusq.testing.suite.needs import needs


class SettleSuite:
    async def test_a_done_job_leaves_the_store(self, hands: Hands) -> None:
        await hands.push()
        await hands.finish(await hands.take())
        assert await hands.counts() in {(0, 0, 0), (None, None, None)}
        await hands.pass_ticks(5)
        assert await hands.is_idle()

    async def test_failed_and_cancelled_jobs_leave_too(self, hands: Hands) -> None:
        for outcome in (Failed("boom"), Cancelled("no longer wanted")):
            await hands.push()
            await hands.finish(await hands.take(), outcome)
            await hands.pass_ticks(5)
            assert await hands.is_idle()

    @needs("fencing")
    async def test_the_same_settlement_again_changes_nothing(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        await hands.finish(claim)
        again = await hands.settle(claim)
        assert again.status in {SettleStatus.ALREADY, SettleStatus.LOST}
        assert await hands.is_idle()

    @needs("fencing")
    async def test_only_the_first_of_two_outcomes_counts(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        await hands.finish(claim)
        assert (await hands.settle(claim, Retry(0, "late"))).status is not SettleStatus.SETTLED
        assert await hands.is_idle()

    @needs("fencing")
    async def test_a_retry_settled_twice_is_one_retry(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        await hands.finish(claim, Retry(0, "boom"))
        assert (await hands.settle(claim, Retry(0, "boom"))).status is not SettleStatus.SETTLED
        second = await hands.take()
        assert (await hands.settle(claim, Retry(0, "boom"))).status is SettleStatus.LOST
        assert second.attempt == 2
        await hands.finish(second)

    @needs("fencing")
    async def test_a_made_up_claim_settles_nothing(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        forged = claim._replace(token=new_id())
        assert (await hands.settle(forged)).status is SettleStatus.LOST
        unknown = claim._replace(id=new_id())
        assert (await hands.settle(unknown)).status is SettleStatus.LOST
        await hands.finish(claim)

    @needs("fencing")
    async def test_many_settlements_are_answered_in_order(self, hands: Hands) -> None:
        await hands.push_many(3)
        claims = await hands.claim()
        await hands.finish(claims[1])
        outcomes: tuple[Outcome, ...] = (Done(), Done(), Retry(60.0, "boom"))
        settled = await hands.adapter.settle(
            [
                Settlement(claim=claim, outcome=outcome)
                for claim, outcome in zip(claims, outcomes, strict=True)
            ]
        )
        assert settled[0].status is SettleStatus.SETTLED
        assert settled[1].status is not SettleStatus.SETTLED
        assert settled[2].status is SettleStatus.SETTLED
        assert await hands.counts() == (0, 1, 0)
        assert list(await hands.adapter.settle([])) == []

    @needs("atomic steps")
    async def test_the_same_claim_twice_in_one_call_is_settled_once(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        settlement = Settlement(claim=claim, outcome=Done(), push=(hands.envelope(),))
        first, second = await hands.adapter.settle([settlement, settlement])
        assert first.status is SettleStatus.SETTLED
        assert second.status is not SettleStatus.SETTLED
        assert len(await hands.claim()) == 1

    @needs("atomic steps")
    async def test_what_follows_is_pushed_with_the_settlement(self, hands: Hands) -> None:
        await hands.push()
        follow = (hands.envelope(body=b"now"), hands.envelope(delay=hands.tick))
        await hands.finish(await hands.take(), push=follow)
        assert await hands.counts() == (1, 1, 0)
        assert (await hands.take()).envelope == follow[0]
        await hands.pass_ticks(1.1)
        assert (await hands.take()).id == follow[1].id

    @needs("atomic steps")
    async def test_a_refused_settlement_pushes_nothing(self, hands: Hands) -> None:
        await hands.push()
        loser = await hands.take()
        await hands.pass_ticks(3.1)
        winner = await hands.take()
        await hands.settle(loser, push=(hands.envelope(),))
        assert await hands.is_idle()
        follow = hands.envelope()
        await hands.finish(winner, push=(follow,))
        assert ids(await hands.claim()) == [follow.id]

    @needs("atomic steps")
    async def test_a_known_id_among_what_follows_is_not_pushed_again(self, hands: Hands) -> None:
        known = await hands.push(delay=hands.tick, body=b"first")
        await hands.push()
        await hands.finish(await hands.take(), push=(hands.envelope(id=known.id, body=b"second"),))
        assert await hands.is_idle()
        await hands.pass_ticks(1.1)
        assert (await hands.take()).envelope == known
