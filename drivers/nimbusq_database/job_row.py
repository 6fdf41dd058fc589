"""Between an envelope and the columns of a job."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from nimbusq.driver import Claim, Ending
from nimbusq.envelope import Envelope, Unique, Unreadable, decode
from nimbusq_database.client import Row

UNIQUE_FOR: Final = 3600.0
"""Seconds that a unique lock without a time to live is held at most (Nimbus)."""
_NOT_UNIQUE: Final[Mapping[str, Any]] = MappingProxyType(
    {"unique_digest": None, "unique_lock": None, "lock_ttl": None}
)


def key_digest(key: str) -> str:
    """A fixed-length key for locks and rates, whose own names may be long."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def lock_digest(unique_digest: str) -> str:
    """The lock behind a unique key of mode "lock"; the locker finds it under the same name."""
    return key_digest(f"unique:{unique_digest}")


def columns(envelope: Envelope) -> dict[str, Any]:
    """A new job's columns: what is needed to order it, gate it and end it without reading its envelope."""
    overlap, batch_id = envelope.overlap, envelope.batch_id
    return {
        "id": envelope.id,
        "queue": envelope.queue,
        "name": envelope.name,
        "wire": envelope.to_wire(),
        "priority": envelope.priority,
        "delay": envelope.delay,
        "expires_in": envelope.expires_in,
        "max_attempts": envelope.max_attempts,
        "gated": int(overlap is not None or envelope.rate is not None),
        "overlap_digest": envelope.overlap_digest if overlap else None,
        "overlap_expire": overlap.expire_after if overlap else None,
        "batch_id": batch_id,
        "member_id": envelope.member_id if batch_id else None,
        **(_unique_columns(envelope, envelope.unique) if envelope.unique else _NOT_UNIQUE),
    }


def _unique_columns(envelope: Envelope, unique: Unique) -> Mapping[str, Any]:
    """The slot's digest, or that of the lock and how long it may be held."""
    digest = envelope.unique_digest
    assert digest is not None, "it has a unique key"
    if unique.mode == "slot":
        return {**_NOT_UNIQUE, "unique_digest": digest}
    ttl = UNIQUE_FOR if unique.ttl is None else unique.ttl
    return {"unique_digest": None, "unique_lock": lock_digest(digest), "lock_ttl": ttl}


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
