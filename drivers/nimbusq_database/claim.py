"""Claim: the jobs of one call, in one transaction."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final

from nimbusq.driver import Claim, Claimed, Lane, Want
from nimbusq.envelope import Rate
from nimbusq_database.gates import Verdicts, judge
from nimbusq_database.job_row import stored_ending, to_claim
from nimbusq_database.rates import Rates
from nimbusq_database.reclaim import Reclaimed, hand_out, note_claim, reclaim
from nimbusq_database.transaction import Transaction

_ROUNDS: Final = 20
"""How often a lane is asked again after its candidates were put back or ended."""
_MANY: Final = 50
"""Candidates of such a further round."""
_SOON: Final = 0.02
"""Seconds until a key is asked for again that another claim was judging."""


@dataclass(frozen=True, slots=True)
class Look:
    """A claim's answer, and in seconds from now when the next one could find something (None: unknown)."""

    claimed: Claimed
    due_in: float | None = None


async def claim(tx: Transaction, want: Want) -> Look:
    """Take lost leases back, then due jobs lane by lane."""
    gate = await tx.one("claim_gate", token=want.token)
    assert gate is not None, "a statement without a table answers one row"
    if gate["known"]:
        before = await tx.fetch("claimed_before", token=want.token)
        claims = [to_claim(row, want.token, ending=stored_ending(row), taken=False) for row in before]
        return Look(Claimed(claims=claims))
    lost = await reclaim(tx, want) if gate["lapsed"] else Reclaimed()
    taking = _Taking(want=want, claims=lost.endings, endings=len(lost.endings))
    if want.limit > 0:
        paused = await tx.fetch("queues_paused") if gate["paused"] else ()
        await taking.take(tx, {row["queue"] for row in paused})
    found = Claimed(claims=taking.claims, lost=lost.lost, retry_after=taking.retry_after)
    if found.claims or found.lost or want.wait <= 0:
        return Look(found)
    return Look(found, _SOON if taking.contended else await due_in(tx, want))


async def due_in(tx: Transaction, want: Want) -> float | None:
    """Seconds until a delayed job of these queues is due or a lease may end."""
    row = await tx.one("next_due", queues=[lane.queue for lane in want.lanes])
    return None if row is None or row["due"] is None else max(0.0, float(row["due"] - row["now"]))


@dataclass(slots=True, kw_only=True)
class _Taking:
    """One claim's way through its lanes. `endings`: handed out so far; `taken`: slots that are filled."""

    want: Want
    claims: list[Claim]
    endings: int
    rates: Rates = field(default_factory=Rates)
    retry_after: float | None = None
    contended: bool = False
    taken: int = 0

    async def take(self, tx: Transaction, paused: Set[str]) -> None:
        """Fill the free slots from the lanes, in their order."""
        lanes = [lane for lane in self.want.lanes if lane.queue not in paused]
        await self.rates.lock(tx, [lane.rate for lane in lanes if lane.rate])
        for lane in lanes:
            room = min(lane.limit, self.want.limit - self.taken)
            if lane.rate is None:
                await self._take_lane(tx, lane, room)
            elif room > 0:
                await self._take_rated(tx, lane, lane.rate, room)
        await self.rates.write(tx)

    async def _take_rated(self, tx: Transaction, lane: Lane, rate: Rate, room: int) -> None:
        """The same within the lane's rate, which is spent for what is really taken."""
        allowed = self.rates.allowed(rate)
        if allowed:
            before = self.taken
            await self._take_lane(tx, lane, min(room, allowed))
            self.rates.spend(rate, self.taken - before)
            held_back = allowed < room and self.taken - before == allowed
        else:
            held_back = bool(await tx.fetch("claim_candidates", queue=lane.queue, limit=1))
        if held_back:
            self._hold_back(self.rates.retry_after(rate))

    def _hold_back(self, seconds: float) -> None:
        self.retry_after = seconds if self.retry_after is None else min(seconds, self.retry_after)

    async def _take_lane(self, tx: Transaction, lane: Lane, room: int) -> None:
        """Take up to `room` jobs; look again where some of the candidates had to be put back or ended."""
        asked = room
        for _ in range(_ROUNDS):
            if room <= 0:
                return
            rows = await tx.fetch("claim_candidates", queue=lane.queue, limit=asked)
            verdicts = await judge(tx, rows, room, self.rates, self.endings)
            await self._apply(tx, verdicts)
            room -= len(verdicts.run)
            if len(rows) < asked or (asked >= _MANY and not verdicts.changed):
                return
            asked = max(room, _MANY)

    async def _apply(self, tx: Transaction, verdicts: Verdicts) -> None:
        want = self.want
        if verdicts.run:
            ids = [row["id"] for row, _ in verdicts.run]
            await tx.execute("claim_take", ids=ids, token=want.token, lease=want.lease)
        claims = [to_claim(row, want.token, envelope=envelope) for row, envelope in verdicts.run]
        if tx.audited:
            for (row, _), claim in zip(verdicts.run, claims, strict=True):
                note_claim(tx, "claim", claim, row["now"], want.lease)
        self.claims += claims
        if verdicts.put_back:
            rows = [[row["id"], delay, int(blocked)] for row, delay, blocked in verdicts.put_back]
            await tx.execute("claim_put_back", rows=rows)
        for row, delay, _ in verdicts.put_back:
            tx.note("release", row["id"], "", row["attempts"], at=row["now"], run_at=row["now"] + delay)
        self.claims += await hand_out(tx, want.token, want.lease, verdicts.end)
        self.taken += len(claims)
        self.endings += len(verdicts.end)
        self.contended = self.contended or verdicts.contended
        if verdicts.retry_after is not None:
            self._hold_back(verdicts.retry_after)
