"""Settle: the outcomes of claims and all that follows from them, in one transaction.

One set-based statement per kind of effect, left out where there is none: what leaves, what goes back, what is
recorded, what is pushed. Rows are locked in the order of their ids and a batch's row last, so that two
settlements never wait for each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nimbusq.driver import (
    BatchUpdate,
    Done,
    FailedRecord,
    HistoryRow,
    PutBack,
    Retry,
    Settled,
    Settlement,
    SettleStatus,
)
from nimbusq_database.batches import record
from nimbusq_database.client import Row
from nimbusq_database.push import push
from nimbusq_database.texts import storable
from nimbusq_database.transaction import Transaction

_LOST = Settled(SettleStatus.LOST)
_ALREADY = Settled(SettleStatus.ALREADY)
_SETTLED = Settled(SettleStatus.SETTLED)


@dataclass(frozen=True, slots=True)
class Held:
    """A settlement whose claim holds the job, and its place in the call."""

    settlement: Settlement
    row: Row
    place: int


async def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """Apply what is still held; answers in order."""
    if not settlements:
        return []
    rows = {row["id"]: row for row in await tx.fetch("settle_lock", ids=[s.claim.id for s in settlements])}
    held = _held(settlements, rows)
    noted_at = await tx.audit_time()
    ended = [one for one in held if one.settlement.terminal]
    await _end(tx, ended)
    await _put_back(tx, [one for one in held if not one.settlement.terminal])
    await _keep(tx, [one.settlement for one in ended])
    follows = [envelope for one in held for envelope in one.settlement.push]
    if follows:
        await push(tx, follows)
    updates = await _record(tx, ended)
    if tx.audited and held:
        _note(tx, held, updates, noted_at)
    places = {one.place for one in held}
    return [
        _answer(updates.get(s.claim.id)) if place in places else _missed(s, rows)
        for place, s in enumerate(settlements)
    ]


def _held(settlements: Sequence[Settlement], rows: Mapping[str, Row]) -> list[Held]:
    """Settlements whose claim holds the job; the first one of each job."""
    held: dict[str, Held] = {}
    for place, settlement in enumerate(settlements):
        job_id = settlement.claim.id
        row = rows.get(job_id)
        if row is not None and row["token"] == settlement.claim.token and job_id not in held:
            held[job_id] = Held(settlement, row, place)
    return list(held.values())


def _answer(update: BatchUpdate | None) -> Settled:
    return _SETTLED if update is None else Settled(SettleStatus.SETTLED, update)


def _missed(settlement: Settlement, rows: Mapping[str, Row]) -> Settled:
    """A repeated retry or release is known by its token; of a job that left nothing is known."""
    row = rows.get(settlement.claim.id)
    repeated = row is not None and row["token"] is None and row["put_back_by"] == settlement.claim.token
    return _ALREADY if repeated else _LOST


async def _end(tx: Transaction, ended: Sequence[Held]) -> None:
    """The jobs leave, and their unique keys are free."""
    if not ended:
        return
    await tx.execute("settle_end", ids=[one.row["id"] for one in ended])
    locks = [[one.row["unique_lock"], one.row["id"]] for one in ended if one.row["unique_lock"]]
    if locks:
        await tx.execute("locks_free", rows=sorted(locks))
    tx.topics.update(f"job:{one.row['id']}" for one in ended)


async def _put_back(tx: Transaction, back: Sequence[Held]) -> None:
    """Due again after their delay; the attempt of a put back job is returned if it was counted."""
    rows: list[list[object]] = []
    for one in back:
        outcome, ran = one.settlement.outcome, not one.row["ending"]
        if isinstance(outcome, Retry):
            rows.append([one.row["id"], outcome.delay, 0, 0, storable(outcome.error)])
        elif isinstance(outcome, PutBack):
            rows.append([one.row["id"], outcome.delay, int(ran), int(ran and outcome.counted), None])
    if rows:
        await tx.execute("settle_put_back", rows=rows)
        tx.topics.update(one.row["queue"] for one in back)


async def _keep(tx: Transaction, ended: Sequence[Settlement]) -> None:
    """Results, failed records and history."""
    results = [
        {"id": s.claim.id, "result": s.outcome.result, "ttl": s.result_ttl}
        for s in ended
        if isinstance(s.outcome, Done) and s.outcome.result is not None
    ]
    if results:
        await tx.insert("results_push", results)
    failed = [s.failed for s in ended if s.failed]
    if failed:
        await tx.insert("failed_push", [failed_columns(one) for one in failed])
    history = [s.history for s in ended if s.history]
    if history:
        await tx.execute("history_push", rows=[history_columns(one) for one in history])


def failed_columns(record: FailedRecord) -> dict[str, object]:
    """A failed record as stored; the store sets the time."""
    names = (
        "id",
        "queue",
        "name",
        "wire",
        "error",
        "kind",
        "traceback",
        "fingerprint",
        "attempts",
        "max_attempts",
    )
    values = {name: getattr(record, name) for name in names}
    return {name: storable(value) if isinstance(value, str) else value for name, value in values.items()}


def history_columns(row: HistoryRow) -> list[object]:
    """A history row as `history_push` takes it; the store sets the time."""
    return [
        row.id,
        row.queue,
        row.name,
        row.state,
        row.attempt,
        row.waited,
        row.duration,
        storable(row.error),
        storable(row.worker),
        json.dumps(row.tags) if row.tags else "[]",
        int(row.silenced),
    ]


async def _record(tx: Transaction, ended: Sequence[Held]) -> dict[str, BatchUpdate | None]:
    """Count the batches' members; the updates by the settled job's id."""
    records = {one.row["id"]: one.settlement.record for one in ended if one.settlement.record}
    updates = await record(tx, list(records.values())) if records else []
    return dict(zip(records, updates, strict=True))


def _note(
    tx: Transaction, held: Sequence[Held], updates: Mapping[str, BatchUpdate | None], now: float
) -> None:
    for one in held:
        claim, attempt = one.settlement.claim, one.row["attempts"]
        match one.settlement.outcome:
            case Retry(delay=delay):
                tx.note("retry", claim.id, claim.token, attempt, at=now, run_at=now + delay)
            case PutBack(delay=delay):
                attempt -= not one.row["ending"]
                tx.note("release", claim.id, claim.token, attempt, at=now, run_at=now + delay)
            case outcome:
                extra: dict[str, object] = {}
                if (counted := one.settlement.record) and (update := updates.get(claim.id)):
                    extra = {"batch": counted.batch_id, "member": counted.member, "counted": update.counted}
                tx.note(type(outcome).__name__.lower(), claim.id, claim.token, attempt, at=now, **extra)
