"""Polls that nobody cancels, and what becomes of messages that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from botocore.exceptions import EndpointConnectionError

from nimbusq.driver import Ending, Lane
from nimbusq.errors import StoreUnavailable
from nimbusq.testing.suite.hands import Hands, ids, queue_only
from tests.unit.sqs.stub import Desk


def waits(desk: Desk) -> list[int]:
    return [asked["WaitTimeSeconds"] for asked in desk.sqs.asked("receive_message")]


@pytest.fixture
async def waiting(desk: Desk, hands: Hands) -> AsyncIterator[asyncio.Task[object]]:
    """A claim that waits on an empty queue; its poll runs to its end before the test is over."""
    claim = asyncio.create_task(hands.claim(wait=60.0))
    await desk.clock.advance(0.0)
    yield claim  # type: ignore[misc]  # whatever it brings
    claim.cancel()
    await asyncio.wait([claim])
    await desk.clock.advance(10.0)


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


class TestPolls:
    async def test_an_empty_queue_is_asked_and_then_polled_for_5_s(
        self, desk: Desk, waiting: asyncio.Task[object]
    ) -> None:
        assert waits(desk) == [0, 5]
        await desk.clock.advance(5.0)
        assert waiting.result() == []

    async def test_a_queue_that_was_empty_is_polled_at_once(self, desk: Desk, hands: Hands) -> None:
        for _ in range(3):
            claim = asyncio.create_task(hands.claim(wait=5.0))
            await desk.clock.advance(6.0)
            assert claim.result() == []
        assert waits(desk) == [0, 5, 5, 5]

    async def test_a_cancelled_claim_leaves_its_poll_alone(
        self, desk: Desk, hands: Hands, waiting: asyncio.Task[object]
    ) -> None:
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        sent = await hands.push()
        await desk.clock.advance(0.5)
        claim = await hands.take(limit=1)
        assert (claim.id, claim.attempt) == (sent.id, 1)
        assert waits(desk) == [0, 5], "the poll brought it, nothing else was asked"

    async def test_what_a_poll_brings_to_nobody_is_handed_back_without_an_attempt(
        self, desk: Desk, hands: Hands, waiting: asyncio.Task[object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nimbusq_sqs.receiving._LINGER", 0.0)
        waiting.cancel()
        await asyncio.wait([waiting])
        sent = await hands.push(max_attempts=1)
        await desk.clock.advance(0.5)
        await asyncio.sleep(0.01)  # the timer that looks at what is left
        await turns()
        monkeypatch.undo()
        other = Hands(env=hands.env, adapter=hands.adapter, tick=20.0)  # another lease, another stock
        claim = await other.take()
        assert (claim.id, claim.attempt, claim.releases, claim.ending) == (sent.id, 1, 0, None)

    async def test_closing_waits_for_polls_and_hands_back(self, desk: Desk, hands: Hands) -> None:
        claim = asyncio.create_task(hands.claim(wait=60.0))
        await desk.clock.advance(0.0)
        claim.cancel()
        await asyncio.wait([claim])
        sent = await hands.push()
        closing = asyncio.create_task(desk.adapter.aclose())
        await turns()
        assert not closing.done()
        await desk.clock.advance(0.5)
        await closing
        await desk.adapter.open()
        again = await hands.take()
        assert (again.id, again.attempt) == (sent.id, 1)

    async def test_no_more_than_the_free_slots_are_asked_for(self, desk: Desk, hands: Hands) -> None:
        await hands.push_many(30)
        assert len(await hands.claim(limit=3)) == 3
        assert len(await hands.claim(limit=25)) == 20, "full receives go out two at a time"
        assert [asked["MaxNumberOfMessages"] for asked in desk.sqs.asked("receive_message")] == [3, 10, 10]

    async def test_receivers_grow_while_receives_come_back_full(self, desk: Desk, hands: Hands) -> None:
        await hands.push_many(130)
        counts = [len(await hands.claim(limit=100)) for _ in range(4)]
        assert counts == [10, 80, 40, 0]
        assert await hands.claim(limit=100) == []

    async def test_a_limit_of_nothing_asks_nothing(self, desk: Desk, hands: Hands) -> None:
        assert await hands.claim(limit=0) == []
        lanes = (Lane(queue="a", limit=0), Lane(queue="b", limit=2))
        await hands.claim(lanes=lanes)
        assert {asked["QueueUrl"] for asked in desk.sqs.asked("receive_message")} == {"http://stub/nimbusq-b"}

    async def test_a_preferred_queue_is_watched_while_another_keeps_the_worker_busy(
        self, desk: Desk, hands: Hands
    ) -> None:
        lanes = queue_only("urgent", "plain")
        await hands.push_many(30, queue="plain")
        await hands.claim(limit=2, lanes=lanes, wait=5.0)
        await hands.claim(limit=2, lanes=lanes, wait=5.0)
        urgent = await hands.push(queue="urgent")
        await desk.clock.advance(0.5)
        claims = await hands.claim(limit=2, lanes=lanes, wait=5.0)
        assert claims[0].id == urgent.id
        await desk.clock.advance(6.0)


class TestTrouble:
    async def test_a_receive_that_fails_is_the_claims_error_once(self, desk: Desk, hands: Hands) -> None:
        await hands.claim()
        trouble = EndpointConnectionError(endpoint_url="http://stub")
        desk.sqs.interrupt = lambda operation, asked: trouble
        with pytest.raises(StoreUnavailable):
            await hands.claim()
        with pytest.raises(StoreUnavailable):
            await hands.claim(wait=5.0)
        desk.sqs.interrupt = lambda operation, asked: None
        sent = await hands.push()
        assert ids(await hands.claim()) == [sent.id]

    async def test_a_poll_that_fails_after_its_claim_was_cancelled_harms_nobody(
        self, desk: Desk, hands: Hands, waiting: asyncio.Task[object]
    ) -> None:
        waiting.cancel()
        await asyncio.wait([waiting])
        del desk.sqs.queues["http://stub/nimbusq-probe"]
        await desk.clock.advance(0.5)
        sent = await hands.push()
        assert ids(await hands.claim()) == [sent.id]
        assert len(desk.sqs.asked("create_queue")) == 2


class TestEndings:
    async def test_a_job_whose_runs_were_all_lost_is_ended(self, desk: Desk, hands: Hands) -> None:
        sent = await hands.push(max_attempts=2)
        for attempt in (1, 2):
            claim = await hands.take(lease=10.0)
            assert (claim.attempt, claim.fence) == (attempt, attempt)
            await desk.clock.advance(10)
        claimed = await hands.collect(lease=10.0)
        (ending,) = claimed.claims
        (lost,) = claimed.lost
        assert (ending.ending, ending.attempt, ending.fence) == (Ending.LOST, 2, 3)
        assert (lost.id, lost.attempt, lost.envelope) == (sent.id, 2, sent)
        await desk.clock.advance(10)
        again = await hands.take_ending()
        assert (again.ending, again.attempt) == (Ending.LOST, 2), "whoever got it died too"

    async def test_a_job_that_expired_is_ended(self, desk: Desk, hands: Hands) -> None:
        await hands.push(expires_in=20.0)
        await hands.push(expires_in=2_000.0, delay=1_000.0)
        await desk.clock.advance(21)
        ending = await hands.take_ending()
        assert (ending.ending, ending.attempt) == (Ending.EXPIRED, 0)
        await hands.finish(ending)
        await desk.clock.advance(1_000)
        await hands.claim()
        await desk.clock.advance(1_000)
        assert (await hands.take_ending()).ending is Ending.EXPIRED, "counted from the push, through the hop"
