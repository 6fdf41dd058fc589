"""Order: priority, then arrival; delays are kept."""

from __future__ import annotations

from nimbusq.driver import PutBack
from nimbusq.testing.suite.hands import Hands, ids
from nimbusq.testing.suite.needs import needs


class OrderSuite:
    @needs("atomic steps")
    async def test_first_in_first_out(self, hands: Hands) -> None:
        sent = [await hands.push() for _ in range(5)]
        claimed = [(await hands.take(limit=1)).id for _ in range(5)]
        assert claimed == ids(sent)

    @needs("atomic steps")
    async def test_jobs_of_one_call_keep_their_order(self, hands: Hands) -> None:
        sent = await hands.push_many(20)
        claimed = [claim.id for _ in range(10) for claim in await hands.claim(limit=2)]
        assert claimed == ids(sent)

    @needs("priorities")
    async def test_priority_one_comes_first(self, hands: Hands) -> None:
        sent = {priority: await hands.push(priority=priority) for priority in (10, 6, 5, 4, 1, 9)}
        claimed = [(await hands.take(limit=1)).id for _ in range(6)]
        assert claimed == [sent[priority].id for priority in (1, 4, 5, 6, 9, 10)]

    @needs("priorities")
    async def test_equal_priorities_keep_their_order(self, hands: Hands) -> None:
        sent = [await hands.push(priority=priority) for priority in (7, 3, 7, 3)]
        claimed = [(await hands.take(limit=1)).id for _ in range(4)]
        assert claimed == [sent[n].id for n in (1, 3, 0, 2)]

    async def test_a_delayed_job_is_not_due_before_its_time(self, hands: Hands) -> None:
        sent = await hands.push(delay=2 * hands.tick)
        assert await hands.counts() in {(0, 1, 0), (None, None, None)}
        await hands.pass_ticks(0.5)  # a claim may wait for nearly another tick
        assert await hands.claim() == []
        await hands.pass_ticks(1.6)
        assert await hands.counts() in {(1, 0, 0), (None, None, None)}
        assert (await hands.take()).id == sent.id

    @needs("atomic steps")
    async def test_delayed_jobs_come_in_the_order_of_their_due_times(self, hands: Hands) -> None:
        late = await hands.push(delay=2 * hands.tick)
        early = await hands.push(delay=hands.tick)
        await hands.pass_ticks(2.1)
        now = await hands.push()
        claimed = [(await hands.take(limit=1)).id for _ in range(3)]
        assert claimed == [early.id, late.id, now.id]

    @needs("priorities")
    async def test_a_delayed_job_that_is_due_keeps_its_priority(self, hands: Hands) -> None:
        urgent = await hands.push(delay=hands.tick, priority=1)
        plain = await hands.push()
        await hands.pass_ticks(1.1)
        assert [(await hands.take(limit=1)).id for _ in range(2)] == [urgent.id, plain.id]

    @needs("atomic steps")
    async def test_delayed_jobs_do_not_hide_those_that_are_due(self, hands: Hands) -> None:
        await hands.push_many(150, delay=5 * hands.tick, priority=1)
        due = await hands.push(priority=9)
        assert ids(await hands.claim(limit=3)) == [due.id]
        assert await hands.counts() == (0, 150, 1)

    @needs("atomic steps")
    async def test_a_job_put_back_comes_after_those_that_were_due_before(self, hands: Hands) -> None:
        first = await hands.push()
        claim = await hands.take(limit=1)
        second = await hands.push()
        await hands.pass_ticks(0.1)
        await hands.finish(claim, PutBack(0.0))
        assert [(await hands.take(limit=1)).id for _ in range(2)] == [second.id, first.id]

    @needs("atomic steps")
    async def test_oldest_is_the_time_that_the_first_due_job_waits(self, hands: Hands) -> None:
        await hands.push(delay=hands.tick)
        (depth,) = await hands.adapter.depth([hands.queue])
        assert depth.oldest is None
        await hands.pass_ticks(3)
        (depth,) = await hands.adapter.depth([hands.queue])
        assert depth.oldest is not None
        assert abs(depth.oldest - 2 * hands.tick) < hands.tick / 2

    @needs("atomic steps")
    async def test_depth_answers_each_queue_in_order(self, hands: Hands) -> None:
        await hands.push_many(2, queue="b")
        depths = await hands.adapter.depth(["a", "b", "a"])
        assert [(depth.queue, depth.pending, depth.running) for depth in depths] == [
            ("a", 0, 0),
            ("b", 2, 0),
            ("a", 0, 0),
        ]
