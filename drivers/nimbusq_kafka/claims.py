"""From a record to a claim: what its value, its headers and its window say together."""

from __future__ import annotations

from typing import Final

from nimbusq.driver import Claim, Ending, Lost
from nimbusq.envelope import Envelope, Unreadable, decode
from nimbusq_kafka.hands import Place
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.records import Counters, Received, due_at, job_id, timestamp

_DEFAULT_ATTEMPTS: Final = 4
"""For bytes that do not say how often they may be tried."""


def claim_of(partition: Partition, record: Received, counters: Counters, *, token: str, now: float) -> Claim:
    """The claim of this record, with its ending if it must not run; `now` on the brokers' clock."""
    envelope = partition.envelope_of(record)
    header = _header(envelope)
    lost = partition.window.lost.get(record.offset, 0)
    attempts = counters.attempts + lost
    due = due_at(record, counters)
    ending = _ending(header, attempts, record, counters, now)
    return Claim(
        id=job_id(record, counters, header),
        queue=partition.queue,
        envelope=envelope,
        attempt=attempts if ending else attempts + 1,
        token=token,
        releases=counters.releases,
        fence=counters.fence + lost + 1,
        run_at=due,
        waited=now - due if now > due else 0.0,
        reclaimed=lost > 0,
        ending=ending,
        receipt=Place(record.topic, record.partition, record.offset),
    )


def lost_run(partition: Partition, record: Received) -> tuple[Lost, bool]:
    """The run of this record that a former owner has left behind, and whether it was the last allowed one."""
    counters, envelope = Counters.of(record), decode(record.value or b"")
    header = _header(envelope)
    attempts = counters.attempts + partition.window.lost.get(record.offset, 0)
    told = Lost(
        id=job_id(record, counters, header), queue=partition.queue, envelope=envelope, attempt=attempts
    )
    return told, attempts >= _max_attempts(header)


def _ending(
    header: Envelope | None, attempts: int, record: Received, counters: Counters, now: float
) -> Ending | None:
    if attempts >= _max_attempts(header):
        return Ending.LOST
    if header is None or header.expires_in is None:
        return None
    pushed_at = counters.pushed_at if counters.pushed_at is not None else timestamp(record)
    return Ending.EXPIRED if now >= pushed_at + header.expires_in else None


def _header(envelope: Envelope | Unreadable) -> Envelope | None:
    return envelope.header if isinstance(envelope, Unreadable) else envelope


def _max_attempts(header: Envelope | None) -> int:
    return header.max_attempts if header else _DEFAULT_ATTEMPTS
