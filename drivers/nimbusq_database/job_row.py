"""Between an envelope and the columns of a job."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from nimbusq.driver import Claim, Ending
from nimbusq.envelope import Envelope, Unique, Unreadable, decode
from nimbusq_database.client import Row

UNIQUE_FOR: Final = 3600.0
"""Seconds that a unique lock without a time to live is held at most (Nimbus)."""


def key_digest(key: str) -> str:
    """A fixed-length key for locks and rates, whose own names may be long."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def lock_digest(unique_digest: str) -> str:
    """The lock behind a unique key of mode "lock"; the locker finds it under the same name."""
    return key_digest(f"unique:{unique_digest}")


def columns(envelope: Envelope) -> dict[str, Any]:
    """A new job's columns: what is needed to order it, gate it and end it without reading its envelope."""
    unique = envelope.unique
    slot, lock = None, None
    if unique is not None and (found := envelope.unique_digest) is not None:
        slot, lock = (found, None) if unique.mode == "slot" else (None, lock_digest(found))
    return {
        "id": envelope.id,
        "queue": envelope.queue,
        "name": envelope.name,
        "wire": envelope.to_wire(),
        "priority": envelope.priority,
        "delay": envelope.delay,
        "expires_in": envelope.expires_in,
        "max_attempts": envelope.max_attempts,
        "gated": int(envelope.overlap is not None or envelope.rate is not None),
        "unique_digest": slot,
        "unique_lock": lock,
        "lock_ttl": _lock_ttl(unique),
        "overlap_digest": envelope.overlap_digest,
        "overlap_expire": envelope.overlap.expire_after if envelope.overlap else None,
        "batch_id": envelope.batch_id,
        "member_id": envelope.member_id if envelope.batch_id else None,
    }


def _lock_ttl(unique: Unique | None) -> float:
    return UNIQUE_FOR if unique is None or unique.ttl is None else unique.ttl


def raw_columns(raw: bytes, job_id: str, queue: str, name: str, max_attempts: int) -> dict[str, Any]:
    """The columns of bytes that may be no envelope: due at once, with whatever could be read of them."""
    stored = decode(raw)
    header = stored if isinstance(stored, Envelope) else stored.header
    if header is None:
        header = Envelope(id=job_id, name=name, queue=queue, max_attempts=max_attempts)
    known = columns(header)
    return {**known, "id": job_id, "queue": queue, "wire": raw, "delay": 0.0}


def stored_ending(row: Row) -> Ending | None:
    """Why this job must not run, where an earlier claim has found that."""
    return Ending(row["ending"]) if row["ending"] else None


def to_claim(
    row: Row,
    token: str,
    *,
    ending: Ending | None = None,
    taken: bool = True,
    envelope: Envelope | Unreadable | None = None,
) -> Claim:
    """The claim of a row as it was before (`taken`) or is after its claim."""
    counted = taken and ending is None
    return Claim(
        id=row["id"],
        queue=row["queue"],
        envelope=decode(bytes(row["wire"])) if envelope is None else envelope,
        attempt=row["attempts"] + counted,
        token=token,
        releases=row["releases"],
        fence=row["fence"] + taken,
        run_at=row["run_at"],
        waited=max(0.0, row["now"] - row["run_at"]),
        reclaimed=row["reclaims"] > 0,
        ending=ending,
    )
