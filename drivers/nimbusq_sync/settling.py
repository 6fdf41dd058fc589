"""Settle: a claim's outcome and all that follows from it, in one step."""

from __future__ import annotations

from typing import assert_never

from nimbusq.driver import (
    BatchUpdate,
    Cancelled,
    Done,
    Failed,
    PutBack,
    Retry,
    Settled,
    Settlement,
    SettleStatus,
)
from nimbusq_sync import batches, failed, history
from nimbusq_sync.pushing import free_unique, push
from nimbusq_sync.row import Row
from nimbusq_sync.state import State


def settle(state: State, settlement: Settlement, now: float) -> Settled:
    """Apply the settlement, if its claim still holds the job."""
    claim = settlement.claim
    row = state.rows.get(claim.id)
    if row is None or row.token != claim.token:
        return Settled(_missed(state, row, claim.id, claim.token, now))
    state.unlease(row, claim.token)
    match settlement.outcome:
        case Retry(delay, error):
            row.error = error
            _put_back(state, row, "retry", claim.token, delay, now)
        case PutBack(delay, counted):
            if row.ending is None:
                row.attempt -= 1
                row.releases += counted
            _put_back(state, row, "release", claim.token, delay, now)
        case Done() | Failed() | Cancelled():
            _end(state, row, claim.token, now)
        case _:
            assert_never(settlement.outcome)
    update = _follow(state, settlement, row, now)
    return Settled(SettleStatus.SETTLED, update)


def _missed(state: State, row: Row | None, job_id: str, token: str, now: float) -> SettleStatus:
    settled_by = row.put_back_by if row else state.tombstones.token(job_id, now)
    return SettleStatus.ALREADY if settled_by == token else SettleStatus.LOST


def _put_back(state: State, row: Row, event: str, token: str, delay: float, now: float) -> None:
    row.put_back_by = token
    row.run_at = round(now + delay, 6)
    state.note(event, row, token, now, run_at=row.run_at)
    state.line_up(row, now)


def _end(state: State, row: Row, token: str, now: float) -> None:
    del state.rows[row.id]
    state.tombstones.add(row.id, token, now)
    free_unique(state, row, now)
    state.bells.ring_job(row.id)


def _follow(state: State, settlement: Settlement, row: Row, now: float) -> BatchUpdate | None:
    """Count in the batch, push what comes next, keep the records."""
    counted = batches.count(state, settlement.record, now) if settlement.record else None
    if settlement.terminal:
        _note_end(state, settlement, row, counted, now)
    for envelope in settlement.push:
        push(state, envelope, now)
    if settlement.failed:
        failed.keep(state, settlement.failed, now)
    if settlement.history:
        history.keep(state, settlement.history, now)
    if isinstance(settlement.outcome, Done) and settlement.outcome.result is not None:
        state.results.put(row.id, settlement.outcome.result, now + settlement.result_ttl, now)
    return batches.finish_if_due(state, counted, now) if counted else None


def _note_end(
    state: State, settlement: Settlement, row: Row, counted: batches.Counted | None, now: float
) -> None:
    record = settlement.record
    extra: dict[str, object] = {}
    if record and counted:
        extra = {"batch": record.batch_id, "member": record.member, "counted": counted.new}
    state.note(type(settlement.outcome).__name__.lower(), row, settlement.claim.token, now, **extra)
