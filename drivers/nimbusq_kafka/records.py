"""Records: the value is the envelope's wire form as it was pushed, the headers hold what has happened since."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from nimbusq.driver import FailedRecord
from nimbusq.envelope import Envelope

ATTEMPTS: Final = "nimbusq-attempts"
RELEASES: Final = "nimbusq-releases"
FENCE: Final = "nimbusq-fence"
PUSHED_AT: Final = "nimbusq-pushed-at"
RUN_AT: Final = "nimbusq-run-at"
DELAY: Final = "nimbusq-delay"
JOB_ID: Final = "nimbusq-id"

Header = tuple[str, bytes]


class Received(Protocol):
    """What is needed of aiokafka's ConsumerRecord. timestamp: milliseconds since the epoch."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Iterable[Header]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A record to write. The value is never None: that would be a tombstone."""

    topic: str
    value: bytes
    headers: list[Header]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What has happened to a job before its record was written; all zero for one that was just pushed.

    attempts, releases, fence: as in `nimbusq.driver.Claim`. delay: seconds from the record's timestamp until the
    job is due. pushed_at, run_at: seconds since the epoch on the brokers' clock, None where the record's own
    timestamp says it. job_id: for bytes that do not name their job themselves.
    """

    attempts: int = 0
    releases: int = 0
    fence: int = 0
    delay: float = 0.0
    pushed_at: float | None = None
    run_at: float | None = None
    job_id: str | None = None

    @staticmethod
    def of(record: Received) -> Counters:
        """Read the headers. Anybody can write a record, so what makes no sense counts as absent."""
        if not record.headers:
            return _FRESH
        texts = {name: value for name, value in record.headers if name.startswith("nimbusq-") and value}
        return Counters(
            attempts=_count(texts.get(ATTEMPTS)),
            releases=_count(texts.get(RELEASES)),
            fence=_count(texts.get(FENCE)),
            delay=_seconds(texts.get(DELAY)) or 0.0,
            pushed_at=_seconds(texts.get(PUSHED_AT)),
            run_at=_seconds(texts.get(RUN_AT)),
            job_id=texts[JOB_ID].decode("utf-8", "replace") if JOB_ID in texts else None,
        )

    def to_headers(self) -> list[Header]:
        values: list[tuple[str, float | str | None]] = [
            (ATTEMPTS, self.attempts or None),
            (RELEASES, self.releases or None),
            (FENCE, self.fence or None),
            (DELAY, self.delay or None),
            (PUSHED_AT, self.pushed_at),
            (RUN_AT, self.run_at),
            (JOB_ID, self.job_id),
        ]
        return [(name, str(value).encode()) for name, value in values if value is not None]


_FRESH: Final = Counters()


def timestamp(record: Received) -> float:
    """When the record was appended, in seconds since the epoch."""
    return record.timestamp / 1000


def due_at(record: Received, counters: Counters) -> float:
    """When the job is to run, in seconds since the epoch on the brokers' clock."""
    return timestamp(record) + counters.delay if counters.delay else counters.run_at or timestamp(record)


def job_id(record: Received, counters: Counters, header: Envelope | None) -> str:
    """The job's id; for bytes that have none their place in Kafka, which is the same at every delivery."""
    if counters.job_id:
        return counters.job_id
    return header.id if header else f"{record.topic}-{record.partition}-{record.offset}"


def pushed(envelope: Envelope, topic: str) -> Outgoing:
    """A job as it was dispatched; its delay counts from the moment at which the brokers append the record."""
    return Outgoing(
        topic=topic, value=envelope.to_wire(), headers=Counters(delay=envelope.delay).to_headers()
    )


def again(counters: Counters, record: Received, *, topic: str, delay: float, now: float) -> Outgoing:
    """The same job once more, due in `delay` seconds: a retry, a release, or a delay that is moved or over."""
    carried = replace(
        counters,
        delay=max(0.0, delay),
        pushed_at=counters.pushed_at if counters.pushed_at is not None else timestamp(record),
        run_at=None if delay > 0 else now,
    )
    return Outgoing(topic=topic, value=record.value or b"", headers=carried.to_headers())


def parked(failure: FailedRecord, topic: str) -> Outgoing:
    """A job that failed for good, for people to look at: its wire form, and why it failed."""
    texts = {
        JOB_ID: failure.id,
        ATTEMPTS: str(failure.attempts),
        "nimbusq-name": failure.name,
        "nimbusq-kind": failure.kind,
        "nimbusq-error": failure.error,
        "nimbusq-traceback": failure.traceback,
        "nimbusq-fingerprint": failure.fingerprint,
    }
    headers = [(name, text.encode("utf-8", "replace")) for name, text in texts.items() if text]
    return Outgoing(topic=topic, value=failure.wire, headers=headers)


def _count(text: bytes | None) -> int:
    return int(text) if text and text.isdigit() and len(text) < 10 else 0


def _seconds(text: bytes | None) -> float | None:
    try:
        value = float(text) if text else -1.0
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
