"""The gates between a due job and its run: its time or batch may be over, its key taken, its rate spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nimbusq.driver import Ending
from nimbusq.envelope import Envelope, Overlap, Rate, Unreadable, decode
from nimbusq_database.client import Row
from nimbusq_database.job_row import key_digest, stored_ending
from nimbusq_database.rates import Rates
from nimbusq_database.reclaim import MOST
from nimbusq_database.transaction import Transaction


@dataclass(slots=True)
class Verdicts:
    """What becomes of a claim's candidates. Those in none of the lists stay as they are.

    put_back has the delay in seconds, and whether the overlap key was the reason. contended: a key was being
    judged by another claim, so that its job had to be left for the next one. retry_after: seconds until the
    first of the rates that held a job back lets one through.
    """

    run: list[tuple[Row, Envelope | Unreadable]] = field(default_factory=list)
    end: list[tuple[Row, Ending]] = field(default_factory=list)
    put_back: list[tuple[Row, float, bool]] = field(default_factory=list)
    contended: bool = False
    retry_after: float | None = None

    @property
    def changed(self) -> int:
        """How many candidates are none any more."""
        return len(self.run) + len(self.end) + len(self.put_back)


async def judge(tx: Transaction, rows: Sequence[Row], room: int, rates: Rates, endings: int) -> Verdicts:
    """Decide, in the rows' order, which of them run; `endings` have been handed out before."""
    verdicts = Verdicts()
    opened = [(row, decode(bytes(row["wire"]))) for row in rows]
    gates = await _Gates.lock(tx, opened, rates)
    for row, envelope in opened:
        if len(verdicts.run) >= room:
            break
        if ending := _ending(row):
            if endings + len(verdicts.end) < MOST:
                verdicts.end.append((row, ending))
        elif not row["gated"] or isinstance(envelope, Unreadable):
            verdicts.run.append((row, envelope))
        else:
            gates.judge(row, envelope, verdicts)
    return verdicts


def _ending(row: Row) -> Ending | None:
    if ending := stored_ending(row):
        return ending
    if row["cancel_asked"] or row["batch_cancelled"]:
        return Ending.CANCELLED
    if row["expires_at"] is not None and row["expires_at"] <= row["now"]:
        return Ending.EXPIRED
    return None


@dataclass(slots=True)
class _Gates:
    """Overlap keys and rates of the candidates. A key that another claim judges right now is left to it."""

    mine: frozenset[str]
    held: dict[str, int]
    rates: Rates

    @classmethod
    async def lock(
        cls, tx: Transaction, opened: Sequence[tuple[Row, Envelope | Unreadable]], rates: Rates
    ) -> _Gates:
        gated = [(row, found) for row, found in opened if row["gated"] and isinstance(found, Envelope)]
        keys = {row["overlap_digest"] for row, _ in gated if row["overlap_digest"]}
        wanted = {key_digest(found.rate.key): found.rate for _, found in gated if found.rate}
        if not keys and not wanted:
            return cls(frozenset(), {}, rates)
        mine = frozenset(row["key"] for row in await tx.fetch("mutexes", keys=sorted(keys | wanted.keys())))
        overlaps = sorted(keys & mine)
        rows = await tx.fetch("overlap_held", digests=overlaps) if overlaps else ()
        await rates.lock(tx, [rate for digest, rate in wanted.items() if digest in mine])
        return cls(mine, {row["digest"]: row["held"] for row in rows}, rates)

    def judge(self, row: Row, envelope: Envelope, verdicts: Verdicts) -> None:
        digest, overlap, rate = row["overlap_digest"], envelope.overlap, envelope.rate
        if not self._mine(digest, rate):
            verdicts.contended = True
        elif overlap and self.held.get(digest, 0) >= overlap.limit:
            _block(row, overlap, verdicts)
        elif rate and (wait := self.rates.retry_after(rate)):
            verdicts.put_back.append((row, wait, False))
            verdicts.retry_after = wait if verdicts.retry_after is None else min(wait, verdicts.retry_after)
        else:
            if overlap:
                self.held[digest] = self.held.get(digest, 0) + 1
            if rate:
                self.rates.spend(rate)
            verdicts.run.append((row, envelope))

    def _mine(self, digest: str | None, rate: Rate | None) -> bool:
        return (not digest or digest in self.mine) and (not rate or key_digest(rate.key) in self.mine)


def _block(row: Row, overlap: Overlap, verdicts: Verdicts) -> None:
    if overlap.max_releases is not None and row["blocks"] >= overlap.max_releases:
        verdicts.end.append((row, Ending.BLOCKED))
    else:
        verdicts.put_back.append((row, overlap.release_after, True))
