"""Endings: a job that must not run any more is handed out to be settled, and to nobody as a run."""

from __future__ import annotations

from nimbusq.driver import Cancelled, Ending, PutBack, Retry
from nimbusq.testing.suite.hands import Hands, ids, new_id, queue_only
from nimbusq.testing.suite.needs import needs


class EndingSuite:
    @needs("atomic steps")
    async def test_a_job_that_expired_in_the_queue_is_not_run(self, hands: Hands) -> None:
        sent = await hands.push(expires_in=2 * hands.tick)
        await hands.pass_ticks(2.1)
        mine = new_id()
        claim = await hands.take_ending(token=mine)
        assert (claim.id, claim.ending, claim.attempt) == (sent.id, Ending.EXPIRED, 0)
        assert (claim.token, claim.fence) == (mine, 1)
        await hands.finish(claim, Cancelled("expired"))
        assert await hands.is_idle()
        assert await hands.counts() == (0, 0, 0)

    @needs("atomic steps")
    async def test_a_job_that_has_not_expired_runs(self, hands: Hands) -> None:
        await hands.push(expires_in=2 * hands.tick)
        await hands.pass_ticks(1)
        assert (await hands.take()).attempt == 1

    @needs("atomic steps")
    async def test_expiry_counts_from_the_push_not_from_the_delay(self, hands: Hands) -> None:
        await hands.push(delay=hands.tick, expires_in=2 * hands.tick)
        await hands.push(delay=3 * hands.tick, expires_in=2 * hands.tick)
        await hands.pass_ticks(1.1)
        assert (await hands.take()).ending is None
        await hands.pass_ticks(2)
        assert (await hands.take_ending()).ending is Ending.EXPIRED

    @needs("atomic steps")
    async def test_a_run_that_outlasts_the_expiry_is_not_cut(self, hands: Hands) -> None:
        await hands.push(expires_in=hands.tick)
        claim = await hands.take()
        await hands.pass_ticks(2)
        await hands.finish(claim)
        assert await hands.is_idle()

    @needs("atomic steps")
    async def test_an_ending_takes_no_slot(self, hands: Hands) -> None:
        expired = await hands.push_many(3, expires_in=hands.tick)
        await hands.pass_ticks(1.1)
        live = await hands.push()
        claims = await hands.claim(limit=1)
        assert [claim.id for claim in claims if claim.ending is None] == [live.id]
        assert sorted(claim.id for claim in claims if claim.ending) == sorted(ids(expired))

    @needs("atomic steps")
    async def test_an_ending_of_one_lane_takes_no_slot_of_the_next(self, hands: Hands) -> None:
        expired = await hands.push(queue="a", expires_in=hands.tick)
        await hands.pass_ticks(1.1)
        live = await hands.push(queue="b")
        claims = await hands.claim(limit=1, lanes=queue_only("a", "b"))
        assert [(claim.id, claim.ending) for claim in claims] == [
            (expired.id, Ending.EXPIRED),
            (live.id, None),
        ]

    @needs("atomic steps")
    async def test_a_call_without_slots_looks_at_leases_only(self, hands: Hands) -> None:
        await hands.push(expires_in=hands.tick)
        await hands.pass_ticks(1.1)
        assert await hands.claim(limit=0) == []
        assert (await hands.take_ending()).ending is Ending.EXPIRED

    @needs("atomic steps")
    async def test_many_endings_do_not_come_all_at_once(self, hands: Hands) -> None:
        expired = await hands.push_many(120, expires_in=hands.tick)
        await hands.pass_ticks(1.1)
        seen: list[str] = []
        while claims := await hands.claim(limit=1):
            assert len(claims) <= 50
            seen += ids(claims)
        assert sorted(seen) == sorted(ids(expired))

    @needs("atomic steps", "timed leases")
    async def test_an_ending_is_handed_out_again_when_its_holder_dies(self, hands: Hands) -> None:
        await hands.push(expires_in=hands.tick)
        await hands.pass_ticks(1.1)
        first = await hands.take_ending()
        assert await hands.is_idle()
        await hands.pass_ticks(3.1)
        second = await hands.take_ending(limit=0)
        assert (second.id, second.ending, second.attempt) == (first.id, Ending.EXPIRED, 0)
        assert second.fence == first.fence + 1
        await hands.finish(second, Cancelled("expired"))

    @needs("atomic steps", "timed leases")
    async def test_a_lost_ending_is_handed_out_again_as_the_same(self, hands: Hands) -> None:
        await hands.push(max_attempts=1)
        await hands.take()
        await hands.pass_ticks(3.1)
        first = await hands.take_ending()
        await hands.pass_ticks(3.1)
        second = await hands.take_ending()
        assert (first.ending, second.ending, second.attempt) == (Ending.LOST, Ending.LOST, 1)
        await hands.fail(second)

    @needs("atomic steps")
    async def test_the_same_call_again_answers_the_same_endings(self, hands: Hands) -> None:
        await hands.push(expires_in=hands.tick)
        await hands.pass_ticks(1.1)
        want = hands.want()
        (first,) = (await hands.adapter.claim(want)).claims
        (again,) = (await hands.adapter.claim(want)).claims
        assert (again.id, again.token, again.fence, again.ending) == (
            first.id,
            first.token,
            first.fence,
            Ending.EXPIRED,
        )

    @needs("atomic steps")
    async def test_an_ending_put_back_is_an_ending_still(self, hands: Hands) -> None:
        await hands.push(expires_in=hands.tick)
        await hands.pass_ticks(1.1)
        await hands.finish(await hands.take_ending(), PutBack(0, counted=False))
        claim = await hands.take_ending()
        assert (claim.ending, claim.attempt) == (Ending.EXPIRED, 0)

    @needs("atomic steps")
    async def test_an_ending_counts_no_attempt_of_earlier_runs(self, hands: Hands) -> None:
        await hands.push(expires_in=2 * hands.tick)
        await hands.finish(await hands.take(), Retry(3 * hands.tick, "boom"))
        await hands.pass_ticks(3.1)
        claim = await hands.take_ending()
        assert (claim.ending, claim.attempt) == (Ending.EXPIRED, 1)
