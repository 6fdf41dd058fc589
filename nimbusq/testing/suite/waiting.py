"""Waiting claims: woken by what they wait for, and safe to cancel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nimbusq.driver import Claim, PutBack
from nimbusq.testing.suite.hands import Hands, ids, queue_only, settle_all
from nimbusq.testing.suite.needs import needs


@asynccontextmanager
async def a_waiting_claim(
    hands: Hands, wait: float, **fields: Any
) -> AsyncIterator[asyncio.Task[list[Claim]]]:
    """A claim that waits while the body runs; it must have its answer soon after."""
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(hands.claim(wait=wait, **fields))
        await asyncio.sleep(0.02)  # let it wait; no event tells when it does
        yield waiting


class WaitingSuite:
    async def test_a_push_wakes_a_waiting_claim(self, hands: Hands) -> None:
        async with a_waiting_claim(hands, 15) as waiting:
            assert not waiting.done()
            sent = await hands.push()
        assert ids(waiting.result()) == [sent.id]

    async def test_a_push_of_another_process_wakes_it(self, hands: Hands) -> None:
        other = await hands.other()
        async with a_waiting_claim(hands, 15) as waiting:
            sent = await other.push()
            await hands.env.advance(1)  # where a store is polled for what others pushed
        assert ids(waiting.result()) == [sent.id]

    async def test_a_push_to_any_of_its_queues_wakes_it(self, hands: Hands) -> None:
        async with a_waiting_claim(hands, 15, lanes=queue_only("a", "b", "c")) as waiting:
            sent = await hands.push(queue="b")
        assert ids(waiting.result()) == [sent.id]

    @needs("atomic steps")
    async def test_a_push_of_many_wakes_it(self, hands: Hands) -> None:
        async with a_waiting_claim(hands, 15) as waiting:
            sent = await hands.push_many(3)
        assert set(ids(waiting.result())) <= set(ids(sent))
        assert waiting.result()

    async def test_a_delayed_job_that_gets_due_wakes_it(self, hands: Hands) -> None:
        sent = await hands.push(delay=0.3)
        async with a_waiting_claim(hands, 15) as waiting:
            assert not waiting.done()
            await hands.env.advance(0.3)
        assert ids(waiting.result()) == [sent.id]

    async def test_a_delayed_job_pushed_meanwhile_wakes_it_when_due(self, hands: Hands) -> None:
        async with a_waiting_claim(hands, 15) as waiting:
            sent = await hands.push(delay=0.3)
            await hands.env.advance(0.3)
        assert ids(waiting.result()) == [sent.id]

    async def test_a_job_put_back_wakes_it(self, hands: Hands) -> None:
        sent = await hands.push()
        claim = await hands.take()
        async with a_waiting_claim(hands, 15) as waiting:
            await hands.finish(claim, PutBack(0))
        assert ids(waiting.result()) == [sent.id]

    @needs("jobs")
    async def test_a_resumed_queue_wakes_it(self, hands: Hands) -> None:
        jobs = hands.adapter.stores.jobs
        assert jobs
        sent = await hands.push()
        await jobs.pause_queue(hands.queue)
        async with a_waiting_claim(hands, 15) as waiting:
            assert not waiting.done()
            await jobs.resume_queue(hands.queue)
            await hands.env.advance(1)  # where a store is polled for what others changed
        assert ids(waiting.result()) == [sent.id]

    async def test_a_wait_for_nothing_ends_with_its_time(self, hands: Hands) -> None:
        async with a_waiting_claim(hands, 0.2) as waiting:
            await hands.env.advance(0.25)
        assert waiting.result() == []

    async def test_of_two_waiting_claims_each_job_wakes_one(self, hands: Hands) -> None:
        other = await hands.other()
        async with a_waiting_claim(hands, 15) as first, a_waiting_claim(other, 15) as second:
            sent = [await hands.push()]
            await hands.env.advance(1)  # where a store is polled for what others pushed
            await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
            sent.append(await hands.push())
            await hands.env.advance(1)
        claims = first.result() + second.result()
        assert sorted(ids(claims)) == sorted(ids(sent))

    async def test_cancelling_a_waiting_claim_loses_nothing(self, hands: Hands) -> None:
        """DR1, and layer 4 of the fault tests: cancelled at any moment, under load."""
        sent: list[str] = []
        claims: list[Claim] = []
        for turns in range(40):
            waiting = asyncio.ensure_future(hands.claim(limit=2, wait=15))
            for _ in range(turns % 20):
                await asyncio.sleep(0)
            sent.append((await hands.push()).id)
            for _ in range(turns % 7):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                claims += waiting.result()
        await hands.pass_ticks(0.1)
        claims += await hands.claim_all()
        assert sorted(ids(claims)) == sorted(sent)
        assert {claim.attempt for claim in claims} == {1}
        await settle_all(hands.adapter, claims)
