"""The generic cell rate algorithm: one number per key, the theoretical arrival time (tat) of the next job.

ITU-T I.371: with a burst of b and T = 1 / per_second, n jobs may start when tat + (n - b) * T <= now.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import floor
from typing import Final

from nimbusq.envelope import Rate
from nimbusq_database.job_row import key_digest
from nimbusq_database.transaction import Transaction

_EPSILON: Final = 1e-6
"""Seconds: sums of intervals on top of an epoch time are not exact."""


@dataclass(slots=True)
class Rates:
    """Rates whose rows are locked for this transaction; what was spent is written by `write`."""

    now: float = 0.0
    _tats: dict[str, float] = field(default_factory=dict)
    _spent: set[str] = field(default_factory=set)

    async def lock(self, tx: Transaction, rates: Iterable[Rate]) -> None:
        """Lock the rows of these rates, in the order of their digests."""
        wanted = sorted({key_digest(rate.key) for rate in rates} - self._tats.keys())
        if wanted:
            await tx.execute("rates_ensure", digests=wanted)
            for row in await tx.fetch("rates_lock", digests=wanted):
                self._tats[row["digest"]] = row["tat"]
                self.now = row["now"]

    def allowed(self, rate: Rate) -> int:
        """How many may start now."""
        tat = max(self._tats[key_digest(rate.key)], self.now)
        return max(0, floor((self.now - tat + _EPSILON) * rate.per_second + rate.burst))

    def retry_after(self, rate: Rate) -> float:
        """Seconds until the next may start; 0 when one may now."""
        tat = max(self._tats[key_digest(rate.key)], self.now)
        wait = tat + (1 - rate.burst) / rate.per_second - self.now
        return wait if wait > _EPSILON else 0.0

    def spend(self, rate: Rate, n: float = 1) -> None:
        """Count n starts; a negative n gives starts back."""
        digest = key_digest(rate.key)
        self._tats[digest] = max(self._tats[digest], self.now) + n / rate.per_second
        self._spent.add(digest)

    async def write(self, tx: Transaction) -> None:
        """Store what was spent."""
        if self._spent:
            await tx.execute(
                "rates_spend", rows=[[digest, self._tats[digest]] for digest in sorted(self._spent)]
            )
