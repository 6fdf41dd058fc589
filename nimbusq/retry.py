"""How long a failed job waits before its next run."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from nimbusq.errors import InvalidOption


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential back-off: ``min(cap, base * factor ** attempt) * uniform(1 - jitter, 1)`` seconds.

    attempt is 0 after the first failed run. With the defaults: 1-2, 2-4, 4-8 … up to 300-600 s. The delay of the
    dispatch has no part in it. The exponent is clamped, so that no number of attempts overflows.
    """

    base: float = 2.0
    factor: float = 2.0
    cap: float = 600.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        finite = all(map(math.isfinite, (self.base, self.factor, self.cap)))
        if not (finite and self.base > 0 and self.factor >= 1 and self.cap > 0 and 0 <= self.jitter <= 1):
            raise InvalidOption(
                f"a Backoff needs base > 0, factor >= 1, cap > 0 and jitter from 0 to 1, not {self!r}."
            )

    def delay(self, attempt: int) -> float:
        """Seconds to wait after failed run number `attempt` (1 is the first)."""
        exponent = max(0, attempt - 1)
        if self.factor > 1:
            exponent = min(exponent, math.ceil(math.log(max(self.cap / self.base, 1), self.factor)))
        ceiling = min(self.cap, self.base * self.factor**exponent)
        return ceiling * random.uniform(1 - self.jitter, 1)  # noqa: S311  # spreads load, hides nothing


Delays: TypeAlias = Backoff | float | Sequence[float] | Callable[[int], float]
"""What `backoff=` takes: a policy, one delay, a list whose last value repeats, or a function of the attempt."""

DEFAULT = Backoff()
FOREVER: Final = 1e11
"""About 3,000 years in seconds: no duration is as long."""


def delay_after(attempt: int, delays: Delays | None) -> float:
    """Seconds to wait after failed run number `attempt` (1 is the first). Never negative, never infinite."""
    match delays:
        case None:
            seconds = DEFAULT.delay(attempt)
        case Backoff():
            seconds = delays.delay(attempt)
        case int() | float():
            seconds = float(delays)
        case Sequence():
            seconds = float(delays[min(attempt, len(delays)) - 1])
        case _:
            seconds = float(delays(attempt))
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def check_delays(delays: object) -> Delays | None:
    """Return `delays` if `delay_after` can use it; raises InvalidOption."""
    if delays is None or isinstance(delays, Backoff) or callable(delays):
        return delays
    values: Sequence[object] = (
        [delays] if not isinstance(delays, Sequence) or isinstance(delays, str) else delays
    )
    if values and all(isinstance(value, int | float) and 0 <= value < math.inf for value in values):
        return delays  # type: ignore[return-value]  # one of the forms, just checked
    raise InvalidOption(
        f"backoff takes seconds, a non-empty list of seconds, a Backoff or a function of the attempt, not {delays!r}."
    )


def seconds(value: float | timedelta | None, option: str, *, positive: bool = False) -> float:
    """`value` in seconds; raises InvalidOption unless it is finite and not negative (`positive`: above 0)."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < FOREVER:
        raise InvalidOption(f"{option} takes seconds or a timedelta from 0 to {FOREVER:g} s, not {value!r}.")
    if positive and value == 0:
        raise InvalidOption(f"{option} must be more than 0 seconds.")
    return float(value)
