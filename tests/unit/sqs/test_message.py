"""Bodies that SQS takes, and the trail of a copy."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbusq.envelope import Unreadable
from nimbusq_sqs.body import from_text, to_text
from nimbusq_sqs.message import Outgoing, failed_message, received
from nimbusq_sqs.trail import Trail


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_travel_as_text_that_sqs_takes(raw: bytes) -> None:
    text = to_text(raw)
    assert text
    assert all(c in "\t\n" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff" for c in text)
    assert from_text(text) == raw


def test_readable_text_stays_readable() -> None:
    assert to_text(b'{"v":1}\n{"text":"\xc3\xa9"}') == '{"v":1}\n{"text":"é"}'
    assert to_text(b"a\0b") == "base64:YQBi"
    assert to_text(b"base64:YQBi") != "base64:YQBi"


def test_what_somebody_else_marked_as_base64_stays_as_it_is() -> None:
    assert from_text("base64: not at all") == b"base64: not at all"


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "7", "null", '{"attempts": "many", "delay": [1]}', '{"later": 1}']
)
def test_a_strange_trail_counts_as_none(text: str) -> None:
    assert Trail.from_attribute(text) == Trail()


def test_a_trail_comes_back_as_it_was_sent() -> None:
    trail = Trail(attempts=2, releases=3, fence=9, delay=0.0, pushed=1_800_000_000.25, id="x")
    assert Trail.from_attribute(trail.to_attribute()) == trail
    assert Trail().to_attribute() == "{}"


def test_size_counts_the_body_and_each_attribute_in_bytes() -> None:
    message = Outgoing(body="é", trail=Trail(attempts=1))
    assert message.size == 2 + len("nimbusq") + len("String") + len('{"attempts":1}')


def test_a_message_put_there_by_hand_is_unreadable_not_an_error() -> None:
    found = {"MessageId": "m", "ReceiptHandle": "r", "Body": json.dumps({"Records": []})}
    message = received(found, queue="q", url="u", fifo=False, longest_delay=900, now=0.0, received_at=0.0)
    assert isinstance(message.envelope, Unreadable)
    assert (message.id, message.count, message.attempt, message.max_attempts) == ("m", 1, 1, 4)


def test_an_error_beside_a_failed_job_takes_only_the_room_there_is() -> None:
    short = failed_message(b"x", job_id="i", error="ValueError: \0 no", limit=1_000)
    assert short.error == "ValueError: \ufffd no"
    long = failed_message(b"x" * 700, job_id="i", error="é" * 900, limit=1_000)
    assert 0 < len(long.error) < 900
    assert long.size <= 1_000 + 256
    assert failed_message(b"x" * 1_250, job_id="i", error="no room", limit=1_000).error == ""
