"""Batches: a set of pending members and counters, moved in the step that ends a member.

The counters stand in the batch's row, which is locked last of all and written once a call. Who takes the last
member of a sealed batch ends it and pushes its callbacks, in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nimbusq.driver import BatchRecord, BatchState, BatchUpdate
from nimbusq.envelope import Envelope, decode
from nimbusq.errors import BatchNotFound
from nimbusq_database.client import Row
from nimbusq_database.push import push
from nimbusq_database.texts import storable
from nimbusq_database.transaction import Transaction

_ERRORS: Final = 50
"""Errors that a batch keeps, its first ones."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch whose row is locked: its state, and what its end pushes."""

    state: BatchState
    mark: int
    then: bytes | None
    last: bytes | None

    @classmethod
    def read(cls, row: Row) -> Batch:
        return cls(to_state(row), row["mark"], row["then_wire"], row["finally_wire"])

    @property
    def ends(self) -> bool:
        """Nothing is pending, nothing comes, and it has not been ended before."""
        state = self.state
        return state.sealed and not state.pending and state.finished_at is None

    def callbacks(self) -> list[Envelope]:
        """What its end pushes; `then` only if no member failed."""
        wires = [None if self.state.failed else self.then, self.last]
        opened = [decode(bytes(wire)) for wire in wires if wire is not None]
        return [envelope for envelope in opened if isinstance(envelope, Envelope)]


def to_state(row: Row) -> BatchState:
    """A batch's progress from its row."""
    catch = decode(bytes(row["catch_wire"])) if row["catch_wire"] is not None else None
    return BatchState(
        id=row["id"],
        name=row["name"],
        total=row["total"],
        pending=row["pending"],
        failed=row["failed"],
        errors=tuple(json.loads(row["errors"])),
        sealed=bool(row["sealed"]),
        cancelled=bool(row["cancelled"]),
        cancel_on_failure=bool(row["cancel_on_failure"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        finished_at=row["finished_at"],
        catch=catch if isinstance(catch, Envelope) else None,
    )


def not_found(batch_id: str) -> BatchNotFound:
    """The error for a batch that is not there."""
    return BatchNotFound(
        f"batch {batch_id} is unknown, or its record has expired (7 days after its last update)."
    )


async def lock(tx: Transaction, ids: Sequence[str]) -> dict[str, tuple[Batch, float]]:
    """Lock batches in the order of their ids; with each the store's time."""
    rows = await tx.fetch("batches_lock", ids=sorted(set(ids)))
    return {row["id"]: (Batch.read(row), row["now"]) for row in rows}


async def lock_one(tx: Transaction, batch_id: str) -> tuple[Batch, float]:
    """Lock one batch. Raises BatchNotFound."""
    found = await lock(tx, [batch_id])
    if batch_id not in found:
        raise not_found(batch_id)
    return found[batch_id]


async def write(tx: Transaction, batch: Batch, now: float) -> BatchUpdate:
    """Store a locked batch; the one that ends it also pushes its callbacks."""
    state = replace(batch.state, updated_at=now)
    if batch.ends:
        state = replace(state, finished_at=now)
        await push(tx, batch.callbacks())
    await tx.execute(
        "batch_update",
        id=state.id,
        mark=batch.mark,
        total=state.total,
        pending=state.pending,
        failed=state.failed,
        errors=json.dumps(state.errors),
        sealed=int(state.sealed),
        cancelled=int(state.cancelled),
        finishes=int(batch.ends),
    )
    return BatchUpdate(state, finished=batch.ends)


async def record(tx: Transaction, records: Sequence[BatchRecord]) -> list[BatchUpdate | None]:
    """Count members that ended, each once; answers in order, None for a batch that is gone."""
    members = sorted({(one.batch_id, one.member) for one in records})
    pending = {
        (row["batch_id"], row["member_id"])
        for row in await tx.fetch("members_pending", rows=[list(member) for member in members])
    }
    if pending:
        await tx.execute("members_end", rows=[list(member) for member in sorted(pending)])
    batches = await lock(tx, [one.batch_id for one in records])
    counted = _first(records, pending)
    updates: dict[str, BatchUpdate] = {}
    for batch_id in sorted(batches):
        batch, now = batches[batch_id]
        ended = [one for one in counted if one.batch_id == batch_id]
        updates[batch_id] = await write(tx, _count(batch, ended), now) if ended else BatchUpdate(batch.state)
    return [_answer(one, updates.get(one.batch_id), counted) for one in records]


def _first(records: Sequence[BatchRecord], pending: set[tuple[str, str]]) -> list[BatchRecord]:
    """The records that count: the first one of each pending member."""
    left = set(pending)
    counted = []
    for one in records:
        if (one.batch_id, one.member) in left:
            left.discard((one.batch_id, one.member))
            counted.append(one)
    return counted


def _count(batch: Batch, ended: Sequence[BatchRecord]) -> Batch:
    state = batch.state
    failed = [one for one in ended if one.failed]
    errors = state.errors + tuple(storable(one.error) for one in failed if one.error is not None)
    cancelled = state.cancelled or (state.cancel_on_failure and bool(failed))
    return replace(
        batch,
        state=replace(
            state,
            pending=state.pending - len(ended),
            failed=state.failed + len(failed),
            errors=errors[:_ERRORS],
            cancelled=cancelled,
        ),
    )


def _answer(
    one: BatchRecord, update: BatchUpdate | None, counted: Sequence[BatchRecord]
) -> BatchUpdate | None:
    """The batch's end is told to one caller: the last of its members that were counted here."""
    if update is None:
        return None
    mine = [other for other in counted if other.batch_id == one.batch_id]
    return replace(
        update,
        counted=any(other is one for other in mine),
        finished=update.finished and mine[-1] is one,
    )
