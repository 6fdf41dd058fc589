"""Extend: renew the leases of running claims."""

from __future__ import annotations

from collections.abc import Sequence

from nimbusq.driver import Claim, Renewal
from nimbusq_database.client import Row
from nimbusq_database.transaction import Transaction


async def extend(tx: Transaction, claims: Sequence[Claim], lease: float) -> list[Renewal]:
    """Renew what is still held. A row that somebody else has locked counts as renewed."""
    if not claims:
        return []
    ids = [claim.id for claim in claims]
    found = {row["id"]: row for row in await tx.fetch("extend_lock", ids=ids)}
    locked = {row["id"]: row["token"] for row in await _others(tx, set(ids) - found.keys())}
    held = [claim for claim in claims if claim.id in found and found[claim.id]["token"] == claim.token]
    now = await tx.audit_time()
    if held:
        await tx.execute("extend_leases", ids=[claim.id for claim in held], lease=lease)
    if tx.audited:
        for claim in held:
            tx.note("extend", claim.id, claim.token, claim.attempt, at=now, lease_until=now + lease)
    cancelled = {claim.id for claim in held if found[claim.id]["cancel_asked"]}
    tokens = {**locked, **{claim.id: claim.token for claim in held}}
    return [
        Renewal.LOST
        if tokens.get(claim.id) != claim.token
        else Renewal.CANCEL
        if claim.id in cancelled
        else Renewal.RENEWED
        for claim in claims
    ]


async def _others(tx: Transaction, ids: set[str]) -> Sequence[Row]:
    """The holders of rows that could not be locked; those that are gone are not among them."""
    return await tx.fetch("extend_holders", ids=sorted(ids)) if ids else ()
