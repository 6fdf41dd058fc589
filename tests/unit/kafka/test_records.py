"""Records: what the headers carry over from one record of a job to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbusq.driver import FailedRecord
from nimbusq.envelope import Envelope, decode
from nimbusq_kafka.records import Counters, Header, again, due_at, job_id, parked, pushed


@dataclass(frozen=True)
class Record:
    topic: str = "t"
    partition: int = 3
    offset: int = 42
    timestamp: int = 1_000_000
    value: bytes | None = b"value"
    headers: list[Header] = field(default_factory=list)


counters = st.builds(
    Counters,
    attempts=st.integers(0, 10**8),
    releases=st.integers(0, 10**8),
    fence=st.integers(0, 10**8),
    delay=st.floats(0, 1e9),
    pushed_at=st.none() | st.floats(0, 1e11),
    run_at=st.none() | st.floats(0, 1e11),
    job_id=st.none() | st.text(min_size=1),
)


@given(counters)
def test_counters_come_back_as_they_were_written(given_counters: Counters) -> None:
    headers = given_counters.to_headers()
    readable = given_counters.job_id is None or given_counters.job_id.encode("utf-8", "replace").decode()
    if readable:
        assert Counters.of(Record(headers=headers)) == given_counters


def test_a_job_that_was_just_pushed_needs_no_header() -> None:
    outgoing = pushed(Envelope(id="j", name="N", queue="q"), "topic")
    assert outgoing.headers == []
    assert decode(outgoing.value) == Envelope(id="j", name="N", queue="q")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nimbusq-attempts", b"-1"),
        ("nimbusq-attempts", b"many"),
        ("nimbusq-attempts", b"9" * 20),
        ("nimbusq-fence", "²".encode()),
        ("nimbusq-delay", b"nan"),
        ("nimbusq-delay", b"inf"),
        ("nimbusq-delay", b"-5"),
        ("nimbusq-run-at", b"\xff"),
        ("nimbusq-releases", b""),
        ("other", b"1"),
    ],
)
def test_headers_that_make_no_sense_count_as_absent(name: str, value: bytes) -> None:
    assert Counters.of(Record(headers=[(name, value)])) == Counters()


def test_due_times() -> None:
    record = Record(timestamp=1_000_500)
    assert due_at(record, Counters()) == 1000.5
    assert due_at(record, Counters(delay=2.25)) == 1002.75
    assert due_at(record, Counters(run_at=900.0)) == 900.0


def test_the_same_job_again_keeps_its_push_time_and_counters() -> None:
    first = Record(timestamp=1_000_000)
    later = again(Counters(attempts=2, fence=3), first, topic="t.delay.1m", delay=5.0, now=1003.0)
    carried = Counters.of(Record(headers=later.headers))
    assert (carried.attempts, carried.fence, carried.delay, carried.pushed_at) == (2, 3, 5.0, 1000.0)
    assert carried.run_at is None

    moved = again(carried, Record(timestamp=1_003_000), topic="t", delay=0.0, now=1008.0)
    carried = Counters.of(Record(headers=moved.headers))
    assert (carried.attempts, carried.delay, carried.pushed_at, carried.run_at) == (2, 0.0, 1000.0, 1008.0)


def test_a_tombstone_is_written_again_as_empty_bytes() -> None:
    assert again(Counters(), Record(value=None), topic="t", delay=0.0, now=1.0).value == b""


def test_whose_job_a_record_is() -> None:
    record = Record()
    envelope = Envelope(id="j", name="N", queue="q")
    assert job_id(record, Counters(), envelope) == "j"
    assert job_id(record, Counters(job_id="other"), envelope) == "other"
    assert job_id(record, Counters(job_id="other"), None) == "other"
    assert job_id(record, Counters(), None) == "t-3-42", "its place, the same at each delivery"


def test_a_parked_job_says_why() -> None:
    failure = FailedRecord(
        id="j", queue="q", name="N", wire=b"wire", error="boom \udc80", kind="ValueError", attempts=3
    )
    outgoing = parked(failure, "q.failed")
    assert (outgoing.topic, outgoing.value) == ("q.failed", b"wire")
    assert dict(outgoing.headers) == {
        "nimbusq-id": b"j",
        "nimbusq-attempts": b"3",
        "nimbusq-name": b"N",
        "nimbusq-kind": b"ValueError",
        "nimbusq-error": b"boom ?",
    }
