"""Answers to pushes, and jobs that start their life again."""

from __future__ import annotations

from collections.abc import Sequence

from nimbusq.driver import Pushed
from nimbusq.envelope import Envelope, Unreadable, decode
from nimbusq_redis.entries import control, raw_control
from nimbusq_redis.link import Link
from nimbusq_redis.refs import ref, unref
from nimbusq_redis.wires import shorten


def read_pushed(envelopes: Sequence[Envelope], holders: Sequence[bytes]) -> list[Pushed]:
    """What a script says of each pushed envelope: nothing, or who holds its unique key."""
    return [
        Pushed(envelope.id, unref(holder) if holder else None)
        for envelope, holder in zip(envelopes, holders, strict=True)
    ]


async def push_again(
    link: Link, queue: str, raw: bytes, job_id: str, *, failed: bool = False
) -> Pushed | None:
    """Store bytes as a job, due now, whatever is remembered of its earlier life.

    failed: it must be in the failed store, which it leaves in the same step; None where it is not.
    """
    stored = decode(raw)
    if isinstance(stored, Unreadable):
        told = raw_control(queue, stored.header)
    elif stored.queue == queue:
        told = control(stored, due_now=True)
    else:
        told = raw_control(queue, stored)
    holder = await link.run("requeue", "1" if failed else "", ref(job_id), queue, told, shorten(raw, job_id))
    if holder is None:
        return None
    return Pushed(job_id, unref(holder) if holder else None)
