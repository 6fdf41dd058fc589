"""Push: a job enters the store once, and takes its unique key with it."""

from __future__ import annotations

from typing import Final

from nimbusq.driver import Pushed
from nimbusq.envelope import Envelope, Unreadable, decode
from nimbusq_sync.row import Row
from nimbusq_sync.state import State

_UNIQUE_FOR: Final = 3600.0
"""Seconds that a unique lock without a time to live is held at most (Nimbus)."""
_NEVER: Final = float("inf")


def as_stored(envelope: Envelope) -> Envelope:
    """The envelope as another process would get it: what other drivers cannot carry fails here too.

    Only free-form parts can differ from their wire form, so that other envelopes are stored as they are.
    """
    if not (envelope.meta or envelope.extra or envelope.trace):
        return envelope
    stored = decode(envelope.to_wire())
    return stored if isinstance(stored, Envelope) else envelope


def push(state: State, envelope: Envelope, now: float) -> Pushed:
    """Store the job, unless its id is known or its unique key is held."""
    if envelope.id in state.rows or state.tombstones.token(envelope.id, now) is not None:
        return Pushed(envelope.id)
    return _insert(state, envelope, envelope, envelope.queue, envelope.id, now, envelope.delay)


def push_again(state: State, raw: bytes, job_id: str, queue: str, max_attempts: int, now: float) -> Pushed:
    """Store bytes that were stored before, due now, whatever is remembered of the id's earlier life."""
    stored = decode(raw)
    if isinstance(stored, Unreadable):
        header = stored.header or Envelope(
            id=job_id, name="unreadable", queue=queue, max_attempts=max_attempts
        )
    else:
        header = stored
    pushed = _insert(state, stored, header, queue, job_id, now, 0.0)
    if pushed.holder is None:
        state.tombstones.forget(job_id)
    return pushed


def _insert(
    state: State,
    stored: Envelope | Unreadable,
    header: Envelope,
    queue: str,
    job_id: str,
    now: float,
    delay: float,
) -> Pushed:
    unique = header.unique_digest
    if unique and (holder := _take_unique(state, header, unique, job_id, now)):
        return Pushed(job_id, holder)
    row = Row(
        id=job_id,
        queue=queue,
        envelope=stored,
        header=header,
        number=state.number(),
        run_at=round(now + delay, 6) if delay else now,
        expires_at=_NEVER if header.expires_in is None else now + header.expires_in,
        unique=unique,
        overlap=header.overlap_digest,
    )
    state.rows[job_id] = row
    if state.audit is not None:
        state.note("push", row, "", now, **_audit_extra(row))
    state.line_up(row, now)
    return Pushed(job_id)


def _take_unique(state: State, header: Envelope, unique: str, job_id: str, now: float) -> str | None:
    """Take the unique key, or answer who holds it."""
    assert header.unique is not None, "a digest belongs to a key"
    if header.unique.mode == "slot":
        holder = state.unique.setdefault(unique, job_id)
        return None if holder == job_id else holder
    locker = state.locks.get(lock_key(unique), now)
    if locker is not None and locker != job_id:
        return locker
    ttl = _UNIQUE_FOR if header.unique.ttl is None else header.unique.ttl
    state.locks.put(lock_key(unique), job_id, now + ttl, now)
    return None


def free_unique(state: State, row: Row, now: float) -> None:
    """Give the unique key back, if the job still holds it."""
    if row.unique is None or row.header.unique is None:
        return
    if row.header.unique.mode == "slot":
        if state.unique.get(row.unique) == row.id:
            del state.unique[row.unique]
    elif state.locks.get(lock_key(row.unique), now) == row.id:
        state.locks.drop(lock_key(row.unique))


def lock_key(unique: str) -> str:
    """The locker's key behind a unique key of mode "lock"."""
    return f"unique:{unique}"


def _audit_extra(row: Row) -> dict[str, object]:
    header = row.header
    extra: dict[str, object] = {"run_at": row.run_at, "max_attempts": header.max_attempts}
    if header.unique and header.unique.mode == "slot":
        extra["unique"] = row.unique
    if header.batch_id:
        extra |= {"batch": header.batch_id, "member": header.member_id}
    if header.chain:
        extra |= {"chain": header.chain.id, "index": header.chain.index}
    if header.callback:
        extra |= {"callback": header.callback.kind, "of": header.callback.of}
    return extra
