"""Batches whose entries fail one by one, replies that are lost, and what the caller is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from nimbusq.driver import Done, FailedRecord, PutBack, Retry, Settlement, SettleStatus
from nimbusq.errors import ConfigError, DispatchUncertain, StoreError, StoreUnavailable
from nimbusq.testing.suite.hands import Hands, failed_record, ids
from nimbusq_sqs.batches import split
from tests.unit.sqs.stub import Desk, QueueDoesNotExist, RequestThrottled, error

URL = "http://stub/nimbusq-probe"


def test_batches_hold_ten_entries_and_as_many_bytes_as_allowed() -> None:
    assert list(split([1] * 25, 100)) == [range(10), range(10, 20), range(20, 25)]
    assert list(split([60, 30, 20, 90, 10], 100)) == [range(2), range(2, 3), range(3, 5)]
    assert list(split([100, 100], 100)) == [range(1), range(1, 2)]
    assert list(split([], 100)) == []


class Refusals:
    """Lets each entry of an operation fail a number of times."""

    def __init__(self, operation: str, code: str, *, times: int, of: str = "") -> None:
        self.operation, self.code, self.left, self.of = operation, code, times, of

    def __call__(self, operation: str, entry: Mapping[str, Any]) -> str | None:
        if operation != self.operation or self.of not in str(entry) or self.left <= 0:
            return None
        self.left -= 1
        return self.code


class TestPush:
    async def test_an_entry_that_the_server_could_not_store_is_sent_again(
        self, desk: Desk, hands: Hands
    ) -> None:
        desk.sqs.refuse = Refusals("send_message_batch", "InternalError", times=1)
        sent = await hands.push_many(3)
        assert [len(asked["Entries"]) for asked in desk.sqs.asked("send_message_batch")] == [3, 1]
        assert sorted(ids(await hands.claim())) == sorted(ids(sent))

    async def test_what_was_not_stored_is_named_and_the_rest_is_stored(
        self, desk: Desk, hands: Hands
    ) -> None:
        jobs = [hands.envelope() for _ in range(25)]
        desk.sqs.refuse = Refusals("send_message_batch", "InternalError", times=99, of=jobs[12].id)
        with pytest.raises(StoreUnavailable, match="1 of 25 jobs were not stored") as caught:
            await hands.adapter.push(jobs)
        assert [note.split()[1] for note in caught.value.__notes__] == [jobs[12].id]
        assert sorted(ids(await hands.claim_all())) == sorted(job.id for job in jobs if job is not jobs[12])

    @pytest.mark.parametrize(
        "trouble",
        [
            ReadTimeoutError(endpoint_url="http://stub"),
            ConnectionClosedError(endpoint_url="http://stub"),
        ],
    )
    async def test_a_lost_reply_leaves_it_open(self, desk: Desk, hands: Hands, trouble: Exception) -> None:
        await hands.push()
        desk.sqs.interrupt = lambda operation, asked: trouble if operation == "send_message_batch" else None
        job = hands.envelope()
        with pytest.raises(DispatchUncertain) as caught:
            await hands.adapter.push([job])
        assert caught.value.job_id == job.id
        assert len(desk.sqs.asked("send_message_batch")) == 2, "it is not sent again behind the caller's back"

    async def test_a_server_that_was_never_reached_has_stored_nothing(self, desk: Desk, hands: Hands) -> None:
        await hands.push()
        trouble = EndpointConnectionError(endpoint_url="http://stub")
        desk.sqs.interrupt = lambda operation, asked: trouble
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await hands.push()

    @pytest.mark.parametrize(
        ("trouble", "kind"),
        [
            (error(RequestThrottled), StoreUnavailable),
            (error(status=503), StoreUnavailable),
            (error(code="AccessDenied", status=403), StoreError),
            (NoCredentialsError(), ConfigError),
        ],
    )
    async def test_errors_are_told_apart_by_their_class(
        self, desk: Desk, hands: Hands, trouble: Exception, kind: type[Exception]
    ) -> None:
        await hands.push()
        desk.sqs.interrupt = lambda operation, asked: trouble
        with pytest.raises(kind) as caught:
            await hands.push()
        assert type(caught.value) is kind

    async def test_a_queue_that_was_deleted_is_made_again(self, desk: Desk, hands: Hands) -> None:
        await hands.push()
        del desk.sqs.queues[URL]
        with pytest.raises(StoreUnavailable, match="nimbusq migrate up"):
            await hands.push()
        sent = await hands.push()
        assert (await hands.take()).id == sent.id

    async def test_a_role_that_may_only_send_can_send(self, desk: Desk, hands: Hands) -> None:
        desk.sqs.queues[URL] = []
        denied = error(code="AccessDenied", status=403)
        desk.sqs.interrupt = lambda operation, asked: denied if operation == "get_queue_attributes" else None
        sent = await hands.push()
        desk.sqs.interrupt = lambda operation, asked: None
        assert (await hands.take()).id == sent.id

    async def test_a_role_that_may_not_make_queues_says_who_can(self, desk: Desk, hands: Hands) -> None:
        denied = error(code="AccessDenied", status=403)
        desk.sqs.interrupt = lambda operation, asked: denied if operation == "create_queue" else None
        with pytest.raises(StoreError, match=r"queue probe is not there .* `nimbusq migrate up`"):
            await hands.push()


class TestOpen:
    async def test_any_answer_of_the_server_will_do(self) -> None:
        for answer in (error(QueueDoesNotExist), error(code="AccessDenied", status=403), None):
            desk = Desk()
            desk.sqs.interrupt = lambda operation, asked, answer=answer: answer
            desk.sqs.queues["http://stub/nimbusq-default"] = []
            await desk.adapter.open()
            await desk.adapter.aclose()

    async def test_a_server_out_of_reach_is_told(self) -> None:
        desk = Desk()
        desk.sqs.interrupt = lambda operation, asked: EndpointConnectionError(endpoint_url="http://stub")
        with pytest.raises(StoreUnavailable):
            await desk.adapter.open()
        with pytest.raises(StoreUnavailable, match="not open"):
            await desk.adapter.depth(["q"])


class TestSettle:
    async def test_a_delete_that_the_server_could_not_do_is_tried_again(
        self, desk: Desk, hands: Hands
    ) -> None:
        await hands.push()
        desk.sqs.refuse = Refusals("delete_message_batch", "InternalError", times=2)
        await hands.finish(await hands.take())
        assert len(desk.sqs.asked("delete_message_batch")) == 3
        assert desk.sqs.queues[URL] == []

    async def test_a_settlement_that_failed_half_way_goes_on_where_it_stopped(
        self, desk: Desk, hands: Hands
    ) -> None:
        """The copies of a release are sent once, though the same call is repeated until all is deleted."""
        await hands.push_many(3)
        claims = await hands.claim(limit=3)
        settlements = [Settlement(claim=claim, outcome=PutBack(0.0)) for claim in claims]
        desk.sqs.refuse = Refusals(
            "delete_message_batch", "InternalError", times=99, of=claims[1].receipt.handle
        )
        with pytest.raises(StoreUnavailable):
            await hands.adapter.settle(settlements)
        desk.sqs.refuse = lambda operation, entry: None
        settled = await hands.adapter.settle(settlements)
        assert [one.status for one in settled] == [
            SettleStatus.ALREADY,
            SettleStatus.SETTLED,
            SettleStatus.ALREADY,
        ]
        assert len(desk.sqs.entries("send_message_batch")) == 3 + 3
        assert sorted(ids(await hands.claim())) == sorted(ids(claims))

    async def test_nothing_is_deleted_whose_copy_was_not_sent(self, desk: Desk, hands: Hands) -> None:
        sent = await hands.push()
        claim = await hands.take(lease=30.0)
        desk.sqs.refuse = Refusals("send_message_batch", "InvalidMessageContents", times=99)
        with pytest.raises(StoreError, match="InvalidMessageContents"):
            await hands.settle(claim, PutBack(0.0))
        assert desk.sqs.asked("delete_message_batch") == []
        await desk.clock.advance(30)
        assert (await hands.take()).id == sent.id

    async def test_a_lost_reply_of_a_copy_is_worth_another_try(self, desk: Desk, hands: Hands) -> None:
        """For a settlement it is no uncertain dispatch: at worst the copy is there twice, under one id."""
        await hands.push()
        claim = await hands.take()
        trouble = ReadTimeoutError(endpoint_url="http://stub")
        desk.sqs.interrupt = lambda operation, asked: trouble if operation == "send_message_batch" else None
        with pytest.raises(StoreUnavailable):
            await hands.settle(claim, PutBack(0.0))
        desk.sqs.interrupt = lambda operation, asked: None
        await hands.finish(claim, PutBack(0.0))

    async def test_many_are_deleted_ten_a_call(self, desk: Desk, hands: Hands) -> None:
        await hands.push_many(35)
        claims = await hands.claim_all(limit=40)
        await hands.adapter.settle([Settlement(claim=claim, outcome=Done()) for claim in claims])
        assert [len(asked["Entries"]) for asked in desk.sqs.asked("delete_message_batch")] == [10, 10, 10, 5]
        assert desk.sqs.queues[URL] == []

    async def test_a_failed_job_goes_to_the_queue_of_failed_ones_first(
        self, desk: Desk, hands: Hands
    ) -> None:
        sent = await hands.push()
        claim = await hands.take()
        record: FailedRecord = failed_record(claim, "no such user")
        await hands.finish(claim, failed=record)
        (grave,) = desk.sqs.queues[f"{URL}-failed"]
        assert grave.entry["MessageBody"] == sent.to_wire().decode()
        assert grave.entry["MessageAttributes"]["error"]["StringValue"] == "ValueError: no such user"
        operations = [name for name, _ in desk.sqs.calls]
        assert operations.index("delete_message_batch") > len(operations) - 1 - operations[::-1].index(
            "send_message_batch"
        )

    async def test_what_follows_is_sent_before_the_job_is_deleted(self, desk: Desk, hands: Hands) -> None:
        await hands.push()
        follow = hands.envelope()
        await hands.finish(await hands.take(), push=(follow,))
        assert ids(await hands.claim()) == [follow.id]

    async def test_retries_are_hidden_in_batches(self, desk: Desk, hands: Hands) -> None:
        await hands.push_many(12)
        claims = await hands.claim_all(limit=20)
        await hands.adapter.settle([Settlement(claim=claim, outcome=Retry(1.5, "boom")) for claim in claims])
        hidden = desk.sqs.asked("change_message_visibility_batch")
        assert [len(asked["Entries"]) for asked in hidden] == [10, 2]
        assert {entry["VisibilityTimeout"] for asked in hidden for entry in asked["Entries"]} == {2}


async def test_renewals_that_the_server_did_not_do_are_an_error_not_a_loss(desk: Desk, hands: Hands) -> None:
    await hands.push_many(12)
    claims = await hands.claim_all(limit=20)
    desk.sqs.refuse = Refusals("change_message_visibility_batch", "InternalError", times=99)
    with pytest.raises(StoreUnavailable):
        await hands.adapter.extend(claims, lease=30.0)
    desk.sqs.refuse = lambda operation, entry: None
    assert len(await hands.adapter.extend(claims, lease=30.0)) == 12


async def test_a_call_has_its_own_deadline(desk: Desk, hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(**asked: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    await hands.push()
    monkeypatch.setattr("nimbusq_sqs.client.DEADLINE", 0.05)
    monkeypatch.setattr(desk.sqs, "send_message_batch", hang)
    with pytest.raises(DispatchUncertain):
        await hands.push()
