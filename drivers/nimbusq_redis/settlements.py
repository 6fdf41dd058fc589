"""Settlements on the wire: what lua/settle.lua takes, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, assert_never

from nimbusq.driver import (
    BatchRecord,
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
from nimbusq_redis.batch_state import read_batch
from nimbusq_redis.entries import entry
from nimbusq_redis.records import failed_text, history_text
from nimbusq_redis.refs import ref

Argument: TypeAlias = bytes | str | float

_ERROR_LENGTH: Final = 2000
"""Characters of a retried run's error that are kept with the job."""
_SETTLED: Final = Settled(SettleStatus.SETTLED)
_ALREADY: Final = Settled(SettleStatus.ALREADY)
_LOST: Final = Settled(SettleStatus.LOST)
_STATUSES: Final = (_LOST, _SETTLED, _ALREADY)


def settlement_args(settlements: Sequence[Settlement]) -> list[Argument]:
    """The script's arguments for each settlement, one behind the other."""
    flat: list[Argument] = []
    for settlement in settlements:
        claim = settlement.claim
        name, delay = _outcome(settlement)
        effects = _effects(settlement)
        flat += (ref(claim.id), claim.queue, claim.token, name, delay, len(effects))
        flat += effects
    return flat


def _outcome(settlement: Settlement) -> tuple[str, float]:
    match settlement.outcome:
        case Done():
            return "done", 0
        case Failed():
            return "failed", 0
        case Cancelled():
            return "cancelled", 0
        case Retry(delay):
            return "retry", delay
        case PutBack(delay, counted):
            return ("release" if counted else "handback"), delay
    assert_never(settlement.outcome)


def _effects(settlement: Settlement) -> list[Argument]:
    """The record first: the script relies on it."""
    effects: list[Argument] = []
    if settlement.record:
        effects += ("record", *record_args(settlement.record))
    for envelope in settlement.push:
        effects += ("push", *entry(envelope))
    if settlement.failed:
        effects += ("failed", failed_text(settlement.failed))
    if settlement.history:
        effects += ("history", history_text(settlement.history))
    outcome = settlement.outcome
    if type(outcome) is Done:
        if outcome.result is not None:
            effects += ("result", settlement.result_ttl, outcome.result)
    elif type(outcome) is Retry:
        effects += ("error", outcome.error[:_ERROR_LENGTH].encode("utf-8", "replace"))
    return effects


def record_args(record: BatchRecord) -> tuple[str, bytes, str, bytes]:
    """A batch record as the scripts take it."""
    error = (record.error or "").encode("utf-8", "replace")
    return record.batch_id, ref(record.member), "1" if record.failed else "", error


def read_settled(reply: Sequence[Any], count: int) -> list[Settled]:
    """The script's answers, in order."""
    answers = [_STATUSES[status] for status in reply[:count]]
    for index, counted, finished, batch in reply[count:]:
        update = BatchUpdate(read_batch(batch), counted == b"1", finished == b"1")
        answers[index - 1] = Settled(answers[index - 1].status, update)
    return answers
