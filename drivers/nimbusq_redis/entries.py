"""Envelopes as push takes them: (ref, queue, control, wire), in that order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from nimbusq.envelope import Envelope, Rate, digest
from nimbusq_redis.refs import is_shrunk, ref
from nimbusq_redis.wires import short_wire, shorten

_UNIQUE_FOR: Final = 3600.0
"""Seconds that a unique lock without a time to live is held at most."""
_encode = json.JSONEncoder(separators=(",", ":")).encode


def entry(envelope: Envelope) -> tuple[bytes, str, str, bytes]:
    """What push stores of a job."""
    stored = ref(envelope.id)
    wire = short_wire(envelope) if is_shrunk(stored) else shorten(envelope.to_wire(), envelope.id)
    return stored, envelope.queue, control(envelope), wire


def entries(envelopes: Iterable[Envelope]) -> list[bytes | str]:
    """The same for many, one behind the other."""
    flat: list[bytes | str] = []
    for envelope in envelopes:
        flat += entry(envelope)
    return flat


def control(envelope: Envelope, *, due_now: bool = False) -> str:
    """What the store must know to move the job (see lua/lib/job.lua), nothing for a plain one.

    due_now: without the delay, for a job that starts its life again.
    """
    e = envelope
    fields: dict[str, Any] = {}
    if e.max_attempts != 4:
        fields["max"] = e.max_attempts
    if e.priority != 5:
        fields["priority"] = e.priority
    if e.delay and not due_now:
        fields["delay"] = e.delay
    if e.expires_in is not None:
        fields["expires"] = e.expires_in
    if e.batch_id is not None:
        fields["batch"] = e.batch_id
    if e.unique or e.overlap or e.rate:
        fields |= _keys(e)
    return _encode(fields) if fields else ""


def raw_control(queue: str, header: Envelope | None) -> str:
    """The control of bytes that are no envelope: what could be read of them, and the queue they cannot tell."""
    fields = json.loads(control(header, due_now=True) or "{}") if header else {}
    return _encode(fields | {"queue": queue})


def rate_fields(rate: Rate) -> dict[str, Any]:
    """A rate, its key hashed: it is free text."""
    return {"rate": digest("rate", rate.key), "per_second": rate.per_second, "burst": rate.burst}


def _keys(envelope: Envelope) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if unique := envelope.unique:
        if unique.mode == "slot":
            fields["slot"] = envelope.unique_digest
        else:
            ttl = _UNIQUE_FOR if unique.ttl is None else unique.ttl
            fields |= {"lock": envelope.unique_digest, "ttl": ttl, "id": envelope.id}
    if overlap := envelope.overlap:
        fields |= {
            "overlap": envelope.overlap_digest,
            "limit": overlap.limit,
            "release_after": overlap.release_after,
            "expire_after": overlap.expire_after,
        }
        if overlap.max_releases is not None:
            fields["max_releases"] = overlap.max_releases
    if envelope.rate:
        fields |= rate_fields(envelope.rate)
    return fields
