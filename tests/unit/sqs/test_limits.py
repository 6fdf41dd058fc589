"""Limits that servers for tests do not enforce: 900 s, 12 hours, 1 MiB. The stub is as strict as AWS."""

from __future__ import annotations

import pytest

from nimbusq.driver import Done, PutBack, Renewal, Retry, SettleStatus
from nimbusq.errors import PayloadTooLarge, UnsupportedByDriver
from nimbusq.testing.suite.hands import Hands, ids
from nimbusq_sqs.limits import MAX_MESSAGE, RESERVED
from tests.unit.sqs.stub import Desk

HOUR = 3_600.0


async def due_after(desk: Desk, hands: Hands, *, every: float) -> tuple[float, object]:
    """Claim every so often until the job comes; how long that took, and its claim."""
    start = desk.clock.monotonic()
    while not (claims := await hands.claim(lease=60.0)):
        await desk.clock.advance(every)
    return desk.clock.monotonic() - start, claims[0]


class TestDelays:
    @pytest.mark.parametrize("delay", [1.0, 899.5, 900.0, 900.5, 1_800.0, 2_700.0, 5_000.0])
    async def test_a_delay_asks_for_at_most_900_s_and_is_never_early(
        self, desk: Desk, hands: Hands, delay: float
    ) -> None:
        await hands.push(delay=delay)
        took, claim = await due_after(desk, hands, every=7.0)
        assert delay <= took < delay + 7.0 * (2 + delay // 900)
        assert max(entry["DelaySeconds"] for entry in desk.sqs.entries("send_message_batch")) <= 900
        assert (claim.attempt, claim.releases) == (1, 0)  # type: ignore[attr-defined]  # a Claim
        assert claim.run_at == pytest.approx(desk.clock.time() - took + delay, abs=15)  # type: ignore[attr-defined]  # likewise
        assert await hands.claim() == []

    async def test_1800_s_take_one_hop(self, desk: Desk, hands: Hands) -> None:
        await hands.push(delay=1_800.0)
        await due_after(desk, hands, every=1.0)
        assert [entry["DelaySeconds"] for entry in desk.sqs.entries("send_message_batch")] == [900, 900]

    async def test_each_of_many_keeps_its_own_delay(self, desk: Desk, hands: Hands) -> None:
        sent = [hands.envelope(delay=delay) for delay in (0.0, 30.0, 1_000.0)]
        await hands.adapter.push(sent)
        assert [entry["DelaySeconds"] for entry in desk.sqs.entries("send_message_batch")] == [0, 30, 900]

    async def test_a_long_retry_is_hidden_where_it_is(self, desk: Desk, hands: Hands) -> None:
        await hands.push()
        await hands.finish(await hands.take(), Retry(5_000.0, "boom"))
        assert len(desk.sqs.entries("send_message_batch")) == 1
        took, claim = await due_after(desk, hands, every=100.0)
        assert 5_000 <= took <= 5_100
        assert claim.attempt == 2  # type: ignore[attr-defined]  # a Claim

    async def test_a_long_release_hops(self, desk: Desk, hands: Hands) -> None:
        await hands.push()
        await hands.finish(await hands.take(), PutBack(2_000.0))
        took, claim = await due_after(desk, hands, every=10.0)
        assert 2_000 <= took <= 2_040
        assert (claim.attempt, claim.releases) == (1, 1)  # type: ignore[attr-defined]  # a Claim

    async def test_a_hop_whose_worker_died_is_still_not_early(self, desk: Desk, hands: Hands) -> None:
        await hands.push(delay=1_800.0)
        await desk.clock.advance(901)
        desk.sqs.refuse = lambda operation, entry: (
            "InternalError" if operation == "send_message_batch" else None
        )
        with pytest.raises(Exception, match="InternalError"):
            await hands.claim(lease=60.0)
        desk.sqs.refuse = lambda operation, entry: None
        assert await hands.claim() == []
        took, claim = await due_after(desk, hands, every=10.0)
        assert 1_800 - 901 <= took <= 1_800 - 901 + 90
        assert claim.attempt == 1  # type: ignore[attr-defined]  # a Claim


class TestTwelveHours:
    async def test_no_renewal_goes_beyond_them(self, desk: Desk, hands: Hands) -> None:
        await hands.push()
        claim = await hands.take(lease=600.0)
        renewals = []
        for _ in range(12 * 12 - 1):
            await desk.clock.advance(300)
            renewals += await hands.adapter.extend([claim], lease=600.0)
        await desk.clock.advance(250)
        renewals += await hands.adapter.extend([claim], lease=600.0)
        assert renewals == [Renewal.RENEWED] * 143 + [Renewal.LOST]
        entries = desk.sqs.entries("change_message_visibility_batch")
        assert [entry["VisibilityTimeout"] for entry in entries] == [600] * 142 + [300]
        assert await hands.claim() == [], "it is hidden still"

    async def test_a_retry_that_would_go_beyond_them_takes_another_message(
        self, desk: Desk, hands: Hands
    ) -> None:
        sent = await hands.push()
        claim = await hands.take(lease=12 * HOUR)
        await desk.clock.advance(11.9 * HOUR)
        await hands.finish(claim, Retry(600.0, "boom"))
        await desk.clock.advance(599)
        assert await hands.claim() == []
        await desk.clock.advance(1)
        again = await hands.take()
        assert (again.id, again.attempt, again.releases) == (sent.id, 2, 0)

    async def test_a_lease_is_never_longer(self, desk: Desk, hands: Hands) -> None:
        await hands.claim(lease=50_000.0)
        assert desk.sqs.asked("receive_message")[0]["VisibilityTimeout"] == 43_200

    async def test_fractions_of_seconds_are_rounded_up(self, desk: Desk, hands: Hands) -> None:
        await hands.push(delay=0.2)
        assert desk.sqs.entries("send_message_batch")[0]["DelaySeconds"] == 1
        await desk.clock.advance(1)
        claim = await hands.take(lease=1.2)
        assert desk.sqs.asked("receive_message")[0]["VisibilityTimeout"] == 2
        await hands.adapter.extend([claim], lease=2.5)
        assert desk.sqs.entries("change_message_visibility_batch")[0]["VisibilityTimeout"] == 3


class TestSizes:
    async def test_one_byte_too_many_is_refused_without_a_call(self, desk: Desk, hands: Hands) -> None:
        """B52: in bytes, and before the network."""
        header = len(hands.envelope(id="i", body=b"").to_wire())
        with pytest.raises(PayloadTooLarge, match="1,048,577 bytes"):
            await hands.adapter.push([hands.envelope(id="i", body=b"x" * (MAX_MESSAGE + 1 - header))])
        with pytest.raises(PayloadTooLarge, match="at most 1,048,320"):
            await hands.adapter.push(
                [hands.envelope(id="i", body=b"x" * (MAX_MESSAGE - RESERVED + 1 - header))]
            )
        text = "é" * 600_000
        with pytest.raises(PayloadTooLarge):
            await hands.adapter.push([hands.envelope(), hands.envelope(body=text.encode())])
        assert desk.sqs.calls == []

    async def test_the_greatest_job_fits_with_all_that_a_copy_adds(self, desk: Desk, hands: Hands) -> None:
        header = len(hands.envelope(id="i", body=b"").to_wire())
        largest = hands.envelope(id="i", body=b"x" * (MAX_MESSAGE - RESERVED - header))
        assert len(largest.to_wire()) == hands.adapter.capabilities.max_body
        await hands.adapter.push([largest])
        for _ in range(3):
            await hands.finish(await hands.take(), PutBack(123.456))
            await desk.clock.advance(124)
        assert (await hands.take()).envelope == largest

    async def test_ten_times_200_000_bytes_take_five_requests(self, desk: Desk, hands: Hands) -> None:
        sent = [hands.envelope(body=b"x" * 200_000) for _ in range(10)]
        await hands.adapter.push(sent)
        assert [len(asked["Entries"]) for asked in desk.sqs.asked("send_message_batch")] == [2] * 5
        assert sorted(ids(await hands.claim(limit=10))) == sorted(ids(sent))

    async def test_a_body_that_must_be_base64_counts_as_such(self, desk: Desk, hands: Hands) -> None:
        with pytest.raises(PayloadTooLarge):
            await hands.adapter.push([hands.envelope(body=b"\0" * 800_000)])
        assert desk.sqs.calls == []

    async def test_eleven_jobs_take_two_requests(self, desk: Desk, hands: Hands) -> None:
        await hands.push_many(11)
        assert [len(asked["Entries"]) for asked in desk.sqs.asked("send_message_batch")] == [10, 1]


async def test_a_queue_with_a_lower_limit_is_asked_for_it_once() -> None:
    desk = Desk(attributes={"MaximumMessageSize": "262144"})
    hands = Hands(env=None, adapter=desk.adapter, tick=1.0)  # type: ignore[arg-type]  # time stands still
    desk.sqs.queues["http://stub/nimbusq-probe"] = []
    await desk.adapter.open()
    await hands.push()
    with pytest.raises(PayloadTooLarge, match="at most 261,888"):
        await hands.adapter.push([hands.envelope(body=b"x" * 262_145)])
    await hands.adapter.push([hands.envelope(body=b"x" * 130_000) for _ in range(3)])
    assert [len(asked["Entries"]) for asked in desk.sqs.asked("send_message_batch")] == [1, 2, 1]
    assert len(desk.sqs.asked("get_queue_attributes")) == 1
    await desk.adapter.aclose()


class TestFifo:
    async def test_a_delay_is_refused(self, desk: Desk, hands: Hands) -> None:
        with pytest.raises(UnsupportedByDriver, match=r"delays in the FIFO queue orders\.fifo"):
            await hands.adapter.push([hands.envelope(queue="orders.fifo", delay=1.0)])
        assert desk.sqs.entries("send_message_batch") == []

    async def test_a_job_is_sent_with_its_group_and_its_id(self, desk: Desk, hands: Hands) -> None:
        sent = await hands.push(queue="orders.fifo")
        (entry,) = desk.sqs.entries("send_message_batch")
        assert (entry["MessageGroupId"], entry["MessageDeduplicationId"]) == ("orders.fifo", sent.id)
        assert "DelaySeconds" not in entry
        assert desk.sqs.asked("create_queue")[0]["Attributes"]["FifoQueue"] == "true"

    async def test_batches_go_out_one_after_the_other(self, desk: Desk, hands: Hands) -> None:
        sent = await hands.push_many(35, queue="orders.fifo")
        entries = desk.sqs.entries("send_message_batch")
        assert [entry["MessageDeduplicationId"] for entry in entries] == ids(sent)

    async def test_a_job_put_back_keeps_its_place_and_its_attempt_stays_counted(
        self, desk: Desk, hands: Hands
    ) -> None:
        from nimbusq.testing.suite.hands import queue_only

        lanes = queue_only("orders.fifo")
        await hands.push(queue="orders.fifo", max_attempts=2)
        await hands.finish(await hands.take(lanes=lanes), PutBack(5.0))
        assert len(desk.sqs.entries("send_message_batch")) == 1
        await desk.clock.advance(5)
        last = await hands.take(lanes=lanes)
        assert last.attempt == 2
        await hands.finish(last, PutBack(0.0, counted=False))
        assert (await hands.take(lanes=lanes)).attempt == 2, "its last attempt is given back by a copy"


async def test_a_stale_receipt_never_crashes(desk: Desk, hands: Hands) -> None:
    """B64."""
    await hands.push()
    stale = await hands.take(lease=10.0)
    await desk.clock.advance(11)
    current = await hands.take(lease=10.0)
    for outcome in (Done(), Retry(1.0, "late")):
        assert (await hands.settle(stale, outcome)).status is SettleStatus.LOST
    renewals = await hands.adapter.extend([stale, current], lease=10.0)
    assert list(renewals) == [Renewal.LOST, Renewal.RENEWED]
    await hands.finish(current)
