"""Control: cancel and pause single jobs, pause queues."""

from __future__ import annotations

from nimbusq.driver import Cancel, Cancelled, Claim, Ending, Renewal, Retry, SettleStatus
from nimbusq.envelope import Unique
from nimbusq.testing.suite.hands import Hands, history_row, new_id, queue_only
from nimbusq.testing.suite.jobs import store_of
from nimbusq.testing.suite.needs import needs
from nimbusq.testing.suite.unique import refused_for


async def cancel(hands: Hands, job_id: str, token: str | None = None) -> Claim | Cancel:
    return await store_of(hands).cancel(job_id, token=token or new_id(), lease=3 * hands.tick)


class ControlSuite:
    @needs("jobs", "cancelling")
    async def test_a_queued_job_is_handed_to_whoever_cancels_it(self, hands: Hands) -> None:
        for fields in ({}, {"delay": 5 * hands.tick}):
            sent = await hands.push(**fields)
            claim = await cancel(hands, sent.id, "mine")
            assert isinstance(claim, Claim)
            assert (claim.id, claim.ending, claim.token) == (sent.id, Ending.CANCELLED, "mine")
            assert (claim.attempt, claim.fence, claim.envelope) == (0, 1, sent)
            assert await hands.is_idle()
            await hands.finish(claim, Cancelled("no"))
            assert await hands.counts() == (0, 0, 0)

    @needs("jobs", "cancelling")
    async def test_the_same_cancel_again_answers_the_same_claim(self, hands: Hands) -> None:
        sent = await hands.push()
        first, again = await cancel(hands, sent.id, "mine"), await cancel(hands, sent.id, "mine")
        assert isinstance(first, Claim)
        assert isinstance(again, Claim)
        assert (again.id, again.token, again.fence) == (first.id, first.token, first.fence)
        assert await cancel(hands, sent.id, "yours") is Cancel.ASKED
        await hands.finish(first, Cancelled("no"))

    @needs("jobs", "cancelling", "timed leases")
    async def test_a_cancel_whose_caller_died_is_handed_to_the_next(self, hands: Hands) -> None:
        sent = await hands.push()
        await cancel(hands, sent.id)
        await hands.pass_ticks(3.1)
        claim = await hands.take_ending()
        assert (claim.id, claim.ending) == (sent.id, Ending.CANCELLED)
        await hands.finish(claim, Cancelled("no"))

    @needs("jobs", "cancelling", "timed leases")
    async def test_a_running_job_hears_of_it_with_its_renewal(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        assert await hands.extend(claim) is Renewal.RENEWED
        assert await cancel(await hands.other(), claim.id) is Cancel.ASKED
        assert await hands.extend(claim) is Renewal.CANCEL
        assert await hands.extend(claim) is Renewal.CANCEL
        await hands.pass_ticks(2)
        assert await hands.is_idle(), "it was renewed all the same"
        await hands.finish(claim, Cancelled("no"))

    @needs("jobs", "cancelling", "timed leases")
    async def test_a_lost_run_that_was_to_be_cancelled_is_not_run_again(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        await cancel(hands, claim.id)
        await hands.pass_ticks(3.1)
        ending = await hands.take_ending(limit=0)
        assert (ending.id, ending.ending, ending.attempt) == (claim.id, Ending.CANCELLED, 1)
        assert (await hands.settle(claim)).status is SettleStatus.LOST
        await hands.finish(ending, Cancelled("no"))

    @needs("jobs", "cancelling")
    async def test_a_failed_run_that_was_to_be_cancelled_is_not_retried(self, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take()
        await cancel(hands, claim.id)
        await hands.finish(claim, Retry(0, "boom"))
        assert (await hands.take_ending()).ending is Ending.CANCELLED

    @needs("jobs", "cancelling", "history")
    async def test_ended_and_unknown_jobs_say_so(self, hands: Hands) -> None:
        sent = await hands.push()
        claim = await hands.take()
        await hands.finish(claim, history=history_row(claim, "done"))
        assert await cancel(hands, sent.id) is Cancel.ENDED
        assert await cancel(hands, new_id()) is Cancel.UNKNOWN

    @needs("jobs", "cancelling", "unique jobs")
    async def test_cancelling_frees_the_unique_key_when_it_is_settled(self, hands: Hands) -> None:
        sent = await hands.push(unique=Unique(key="account:42"))
        claim = await cancel(hands, sent.id)
        assert isinstance(claim, Claim)
        assert await refused_for(hands) == sent.id
        await hands.finish(claim, Cancelled("no"))
        assert await refused_for(hands) is None

    @needs("jobs", "unique jobs")
    async def test_a_paused_job_waits_and_keeps_its_key(self, hands: Hands) -> None:
        sent = await hands.push(unique=Unique(key="account:42"))
        assert await store_of(hands).pause(sent.id) is True
        view = await store_of(hands).get(sent.id)
        assert view
        assert view.state == "paused"
        await hands.pass_ticks(3.1)
        assert await hands.is_idle()
        assert await refused_for(hands) == sent.id
        assert await store_of(await hands.other()).resume(sent.id) is True
        assert (await hands.take()).id == sent.id

    @needs("jobs")
    async def test_a_paused_delayed_job_keeps_its_due_time(self, hands: Hands) -> None:
        sent = await hands.push(delay=2 * hands.tick)
        await store_of(hands).pause(sent.id)
        await store_of(hands).resume(sent.id)
        await hands.pass_ticks(1)
        assert await hands.is_idle()
        await hands.pass_ticks(1.1)
        assert (await hands.take()).id == sent.id

    @needs("jobs", "cancelling")
    async def test_a_paused_job_can_be_cancelled(self, hands: Hands) -> None:
        sent = await hands.push()
        await store_of(hands).pause(sent.id)
        claim = await cancel(hands, sent.id)
        assert isinstance(claim, Claim)
        await hands.finish(claim, Cancelled("no"))
        assert await store_of(hands).resume(sent.id) is False
        assert await hands.is_idle()

    @needs("jobs")
    async def test_running_and_unknown_jobs_cannot_be_paused(self, hands: Hands) -> None:
        sent = await hands.push()
        claim = await hands.take()
        assert await store_of(hands).pause(sent.id) is False
        assert await store_of(hands).pause(new_id()) is False
        assert await store_of(hands).resume(new_id()) is False
        await hands.finish(claim)

    @needs("jobs")
    async def test_a_paused_queue_takes_jobs_and_gives_none(self, hands: Hands) -> None:
        before = await hands.push()
        assert await store_of(hands).pause_queue("probe") is True
        assert list(await store_of(await hands.other()).paused_queues()) == ["probe"]
        after = await hands.push()
        elsewhere = await hands.push(queue="b")
        claims = await hands.claim(lanes=queue_only("probe", "b"))
        assert [claim.id for claim in claims] == [elsewhere.id]
        assert await store_of(hands).resume_queue("probe") is True
        assert list(await store_of(hands).paused_queues()) == []
        assert [claim.id for claim in await hands.claim()] == [before.id, after.id]

    @needs("jobs", "timed leases")
    async def test_a_paused_queue_lets_running_jobs_end(self, hands: Hands) -> None:
        await hands.push_many(2)
        finished, lost = await hands.claim()
        await store_of(hands).pause_queue("probe")
        assert await hands.extend(finished) is Renewal.RENEWED
        await hands.finish(finished)
        await hands.pass_ticks(3.1)
        claimed = await hands.collect()
        assert [one.id for one in claimed.lost] == [lost.id]
        assert list(claimed.claims) == []
        await store_of(hands).resume_queue("probe")
        assert (await hands.take()).attempt == 2
