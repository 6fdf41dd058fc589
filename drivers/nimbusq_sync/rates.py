"""The generic cell rate algorithm: one number per key, the theoretical arrival time of the next job.

ITU-T I.371; with `burst` b and T = 1 / per_second, n jobs may start when tat + (n - b) * T <= now.
"""

from __future__ import annotations

from typing import Final

from nimbusq.driver import Reserved
from nimbusq.envelope import Rate
from nimbusq_sync.expiring import Expiring
from nimbusq_sync.state import State

_EPSILON: Final = 1e-6
"""Seconds: sums of intervals on top of an epoch time are not exact."""


def retry_after(rates: Expiring[float], rate: Rate, now: float) -> float:
    """Seconds until the rate lets the next job start; 0.0 when it may now. Spends nothing."""
    tat = rates.get(rate.key, now) or now
    wait = tat + (1 - rate.burst) / rate.per_second - now
    return wait if wait > _EPSILON else 0.0


def spend(rates: Expiring[float], rate: Rate, now: float, n: float = 1) -> None:
    """Count n starts."""
    tat = (rates.get(rate.key, now) or now) + n / rate.per_second
    rates.put(rate.key, tat, tat, now)


class MemoryLimiter:
    """`nimbusq.driver.JobLimiter` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def reserve(self, rate: Rate, n: int = 1) -> Reserved:
        state = self._state
        with state.lock:
            now = state.now()
            granted = 0
            while granted < n and not retry_after(state.rates, rate, now):
                spend(state.rates, rate, now)
                granted += 1
            return Reserved(granted, 0.0 if granted == n else retry_after(state.rates, rate, now))

    async def give_back(self, rate: Rate, n: float = 1) -> None:
        state = self._state
        with state.lock:
            spend(state.rates, rate, state.now(), -n)
