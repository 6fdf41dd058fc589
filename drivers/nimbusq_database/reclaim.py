"""Reclaim: leases that have ended are taken back, as a part of every claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from nimbusq.driver import Claim, Ending, Lost, Want
from nimbusq.envelope import decode
from nimbusq_database.client import Row
from nimbusq_database.job_row import stored_ending, to_claim
from nimbusq_database.transaction import Transaction

MOST: Final = 50
"""Leases that one claim takes back, and jobs with an ending that it hands out."""


@dataclass(slots=True)
class Reclaimed:
    """Leases taken back, and the jobs among them that must be ended."""

    lost: list[Lost] = field(default_factory=list)
    endings: list[Claim] = field(default_factory=list)


async def reclaim(tx: Transaction, want: Want) -> Reclaimed:
    """Take ended leases back: the job is due again, or goes to this claim to be ended."""
    found = Reclaimed()
    due = await tx.fetch("leases_due", limit=MOST)
    if not due:
        return found
    ended = [row for row in due if row["lease_until"] <= row["now"]]
    renewed = [row["id"] for row in due if row["lease_until"] > row["now"]]
    if renewed:
        await tx.execute("leases_renewed", ids=renewed)
    lapsed = [row for row in ended if _ending(row) is None]
    if lapsed:
        await tx.execute("leases_lapsed", ids=[row["id"] for row in lapsed])
        tx.topics.update(row["queue"] for row in lapsed)
    for row in ended:
        tx.note("lost", row["id"], row["token"], row["attempts"], at=row["now"])
        if not row["ending"]:  # else no run was lost but the settlement of its end
            envelope = decode(bytes(row["wire"]))
            found.lost.append(
                Lost(id=row["id"], queue=row["queue"], envelope=envelope, attempt=row["attempts"])
            )
    found.endings = await hand_out(
        tx, want.token, want.lease, [(row, ending) for row in ended if (ending := _ending(row))]
    )
    return found


async def hand_out(
    tx: Transaction, token: str, lease: float, jobs: Sequence[tuple[Row, Ending]]
) -> list[Claim]:
    """Give jobs to the claim for their end; no attempt is counted and no slot taken."""
    by_ending: dict[Ending, list[str]] = {}
    for row, ending in jobs:
        by_ending.setdefault(ending, []).append(row["id"])
    for ending, ids in by_ending.items():
        await tx.execute("claim_end", ids=ids, token=token, lease=lease, ending=ending.value)
    claims = [to_claim(row, token, ending=ending) for row, ending in jobs]
    for (row, _), claim in zip(jobs, claims, strict=True):
        note_claim(tx, "ending", claim, row["now"], lease)
    return claims


def note_claim(tx: Transaction, event: str, claim: Claim, now: float, lease: float) -> None:
    """Write down that a token was written."""
    tx.note(event, claim.id, claim.token, claim.attempt, at=now, fence=claim.fence, lease_until=now + lease)


def _ending(row: Row) -> Ending | None:
    """How a job ends whose run was lost, if it does."""
    if ending := stored_ending(row):
        return ending
    if row["cancel_asked"]:
        return Ending.CANCELLED
    return Ending.LOST if row["attempts"] >= row["max_attempts"] else None
