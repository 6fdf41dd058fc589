"""Settlements that only end their jobs, by far the most: one statement for them, or for them and a claim.

They do what `settle` does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from nimbusq.driver import Done, HistoryRow, Settled, Settlement, Want
from nimbusq.envelope import Envelope
from nimbusq_database import plain
from nimbusq_database.claim import Look
from nimbusq_database.client import Row
from nimbusq_database.fronts import Fronts
from nimbusq_database.texts import storable
from nimbusq_database.transaction import Transaction

_PLAIN_HISTORY: Final = ("done", "", (), False)
_told_beside = attrgetter("state", "error", "tags", "silenced")


def just_end(settlements: Sequence[Settlement]) -> bool:
    """Whether, of what `plain.settles`, only jobs have to go and nothing is to be kept but one worker's history."""
    workers = {one.history.worker for one in settlements if one.history}
    return bool(settlements) and len(workers) <= 1 and all(_just_ends(one) for one in settlements)


def _just_ends(settlement: Settlement) -> bool:
    envelope, outcome = settlement.claim.envelope, settlement.outcome
    ends = outcome.result is None if isinstance(outcome, Done) else settlement.terminal
    if not ends or not isinstance(envelope, Envelope):
        return False
    locked = envelope.unique is not None and envelope.unique.mode == "lock"
    return not locked and (
        settlement.history is None or _is_of(settlement, envelope.name, settlement.history)
    )


def _is_of(settlement: Settlement, name: str, row: HistoryRow) -> bool:
    """Whether the row says what the job itself says, from which the statement takes it."""
    claim = settlement.claim
    return (row.id, row.queue, row.name, row.attempt) == (claim.id, claim.queue, name, claim.attempt)


async def end(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """Apply what is still held, of settlements that `just_end`."""
    now = await tx.audit_time()
    (row,) = await tx.fetch("settle_ends", **_ends(settlements))
    return _ended(tx, settlements, row, now)


async def end_and_claim(
    tx: Transaction, settlements: Sequence[Settlement], want: Want, fronts: Fronts
) -> tuple[list[Settled], Look | None]:
    """`end` and `plain.claim` in one statement."""
    now = await tx.audit_time()
    asked = plain.wanted(want, fronts)
    rows = await tx.fetch("settle_and_claim", **_ends(settlements), **asked)
    return _ended(tx, settlements, rows[0], now), await plain.taken(tx, want, fronts, asked, rows)


def _ends(settlements: Sequence[Settlement]) -> dict[str, Any]:
    """The parameters of `settle_ends`: of history that is like most, only the times travel."""
    kept = [one.history for one in settlements]
    rows = [row for row in kept if row]
    parameters: dict[str, Any] = {
        "ids": [one.claim.id for one in settlements],
        "tokens": [one.claim.token for one in settlements],
        "waited": [row and row.waited for row in kept] if rows else [],
        "durations": [row and row.duration for row in kept] if rows else [],
        "worker": storable(rows[0].worker) if rows else "",
    }
    if all(_told_beside(row) == _PLAIN_HISTORY for row in rows):
        return parameters | {"states": [], "errors": [], "tags": [], "silenced": []}
    return parameters | {
        "states": [row and row.state for row in kept],
        "errors": [row and storable(row.error) for row in kept],
        "tags": [row and json.dumps(row.tags) for row in kept],
        "silenced": [row and int(row.silenced) for row in kept],
    }


def _ended(tx: Transaction, settlements: Sequence[Settlement], row: Row, now: float) -> list[Settled]:
    """The answers, all of them settled but for those that were missed."""
    answers = [plain.SETTLED] * len(settlements)
    if row["missed"] is not None:
        missed, already = frozenset(row["missed"]), frozenset(row["already"] or ())
        for place, one in enumerate(settlements):
            if one.claim.id in missed:
                answers[place] = plain.ALREADY if one.claim.id in already else plain.LOST
    plain.tell(tx, settlements, answers, now)
    return answers
