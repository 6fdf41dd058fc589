"""The plain cases of claim, extend and settle as single statements, where each statement is a round trip.

They do what `claim`, `extend` and `settle` do, or nothing at all and say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nimbusq.driver import (
    Claim,
    Claimed,
    Done,
    PutBack,
    Renewal,
    Retry,
    Settled,
    Settlement,
    SettleStatus,
    Want,
)
from nimbusq_database.claim import Look, due_in
from nimbusq_database.client import Row
from nimbusq_database.fronts import Fronts
from nimbusq_database.job_row import to_claim
from nimbusq_database.reclaim import note_claim
from nimbusq_database.settle import history_columns
from nimbusq_database.texts import storable
from nimbusq_database.transaction import Transaction

SETTLED: Final = Settled(SettleStatus.SETTLED)
ALREADY: Final = Settled(SettleStatus.ALREADY)
LOST: Final = Settled(SettleStatus.LOST)


async def claim(tx: Transaction, want: Want, fronts: Fronts) -> Look | None:
    """Claim what is due, if nothing has to be judged for it; None if the longer way must be gone."""
    if not claims(want):
        return None
    while True:
        asked = wanted(want, fronts)
        look = await taken(tx, want, fronts, asked, await tx.fetch("claim_plain", **asked))
        if look is not None or not asked["lapsed_after"]:
            return look
        # The fronts are forgotten by now: the next look is a whole one.


def claims(want: Want) -> bool:
    """Whether `claim` can do it, as far as can be told without a look: no lane has a rate."""
    return not any(lane.rate for lane in want.lanes)


def wanted(want: Want, fronts: Fronts) -> dict[str, Any]:
    """The parameters of `claim_plain`."""
    return {
        "token": want.token,
        "lease": want.lease,
        "limit": want.limit,
        "queues": [lane.queue for lane in want.lanes],
        "limits": [lane.limit for lane in want.lanes],
        **fronts.parameters(want.lanes),
    }


async def taken(
    tx: Transaction, want: Want, fronts: Fronts, asked: Mapping[str, Any], rows: Sequence[Row]
) -> Look | None:
    """What the rows of `claim_plain` say to what was `asked`; None if the longer way must be gone, or where nothing
    was found behind the fronts."""
    found = rows[0]["id"] is not None
    fronts.note(want, rows if found else ())
    if rows[0]["judge"] or (not found and want.limit and asked["lapsed_after"]):
        return None
    if not found:
        return Look(Claimed(), await due_in(tx, want) if want.wait > 0 else None)
    claimed = [to_claim(row, want.token) for row in rows]
    if tx.audited:
        for row, one in zip(rows, claimed, strict=True):
            note_claim(tx, "claim", one, row["now"], want.lease)
    return Look(Claimed(claims=claimed))


async def extend(tx: Transaction, claims: Sequence[Claim], lease: float) -> list[Renewal]:
    """Renew leases; see `nimbusq_database.extend`."""
    if not claims:
        return []
    ids, tokens = [claim.id for claim in claims], [claim.token for claim in claims]
    now = await tx.audit_time()
    rows = await tx.fetch("extend_plain", ids=ids, tokens=tokens, lease=lease)
    if tx.audited:
        for one in [claim for claim, row in zip(claims, rows, strict=True) if row["renewed"]]:
            tx.note("extend", one.id, one.token, one.attempt, at=now, lease_until=now + lease)
    return [_renewal(row) for row in rows]


def _renewal(row: Any) -> Renewal:
    if not row["held"]:
        return Renewal.LOST
    return Renewal.CANCEL if row["cancel_asked"] else Renewal.RENEWED


def settles(settlements: Sequence[Settlement]) -> bool:
    """Whether `settle` can do it: nothing is pushed, counted or failed for good, and no job comes twice."""
    plain = not any(one.push or one.record or one.failed for one in settlements)
    return plain and len({one.claim.id for one in settlements}) == len(settlements)


async def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """Apply what is still held; see `nimbusq_database.settle`."""
    if not settlements:
        return []
    now = await tx.audit_time()
    answers = [_answer(row) for row in await _settle(tx, settlements)]
    tell(tx, settlements, answers, now)
    return answers


def tell(tx: Transaction, settlements: Sequence[Settlement], answers: Sequence[Settled], now: float) -> None:
    """Whoever waits for these jobs, or for others in their queues; in testing mode the audit."""
    settled = [one for one, answer in zip(settlements, answers, strict=True) if answer is SETTLED]
    tx.topics.update(f"job:{one.claim.id}" if one.terminal else one.claim.queue for one in settled)
    _note(tx, settled, now)


async def _settle(tx: Transaction, settlements: Sequence[Settlement]) -> Sequence[Row]:
    results = [one for one in settlements if isinstance(one.outcome, Done) and one.outcome.result is not None]
    return await tx.fetch(
        "settle_plain",
        rows=[_asked(one) for one in settlements],
        result_ids=[one.claim.id for one in results],
        results=[one.outcome.result for one in results if isinstance(one.outcome, Done)],
        ttls=[one.result_ttl for one in results],
        history=[history_columns(one.history) for one in settlements if one.history and one.terminal],
    )


def _asked(settlement: Settlement) -> dict[str, Any]:
    outcome = settlement.outcome
    asked: dict[str, Any] = {
        "id": settlement.claim.id,
        "token": settlement.claim.token,
        "ends": settlement.terminal,
    }
    if isinstance(outcome, Retry):
        asked |= {"delay": outcome.delay, "counted": 0, "retries": True, "error": storable(outcome.error)}
    elif isinstance(outcome, PutBack):
        asked |= {"delay": outcome.delay, "counted": int(outcome.counted), "retries": False}
    return asked


def _answer(row: Any) -> Settled:
    if row["settled"]:
        return SETTLED
    return ALREADY if row["already"] else LOST


def _note(tx: Transaction, settled: Sequence[Settlement], now: float) -> None:
    if not tx.audited:
        return
    for one in settled:
        claim, outcome = one.claim, one.outcome
        if isinstance(outcome, Retry | PutBack):
            event = "retry" if isinstance(outcome, Retry) else "release"
            tx.note(event, claim.id, claim.token, claim.attempt, at=now, run_at=now + outcome.delay)
        else:
            tx.note(type(outcome).__name__.lower(), claim.id, claim.token, claim.attempt, at=now)
