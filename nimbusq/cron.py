"""When a schedule is due: cron expressions in a time zone, and fixed intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from nimbusq.errors import InvalidOption

_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Timetable(Protocol):
    """Instants as epoch seconds; every scheduler computes the same ones."""

    def after(self, instant: float) -> Iterator[float]:
        """The ticks later than `instant`, in order."""
        ...

    def before(self, instant: float) -> Iterator[float]:
        """The ticks earlier than `instant`, the latest first."""
        ...

    def describe(self) -> dict[str, Any]:
        """For people, and for the store."""
        ...


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression (5 fields, or 6 with seconds first) in an IANA time zone.

    Over daylight saving it follows Debian's cron: a time that does not exist runs once right after the gap, a
    time that exists twice runs once, and ``*/30`` goes through both passes of an hour.
    """

    expression: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        try:
            CronSim(self._plain, datetime.now(self._zone))
        except CronSimError as error:
            raise InvalidOption(f"the cron expression {self.expression!r} cannot be used: {error}.") from None

    @property
    def _plain(self) -> str:
        return _ALIASES.get(self.expression.strip().lower(), self.expression)

    @property
    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.tz)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidOption(f"{self.tz!r} is no IANA time zone such as Europe/Berlin.") from error

    def after(self, instant: float) -> Iterator[float]:
        start = datetime.fromtimestamp(instant, self._zone)
        return (tick.timestamp() for tick in CronSim(self._plain, start))

    def before(self, instant: float) -> Iterator[float]:
        start = datetime.fromtimestamp(instant, self._zone)
        return (tick.timestamp() for tick in CronSim(self._plain, start, reverse=True))

    def describe(self) -> dict[str, Any]:
        words: str = CronSim(self._plain, datetime.now(UTC)).explain()
        return {"cron": self.expression, "tz": self.tz, "words": words}


@dataclass(frozen=True, slots=True)
class Every:
    """Every `seconds`, counted from the epoch, so that all schedulers agree without talking."""

    seconds: float

    def __post_init__(self) -> None:
        if not (isinstance(self.seconds, int | float) and 0.1 <= self.seconds < math.inf):
            raise InvalidOption(f"every() takes an interval of 0.1 seconds or more, not {self.seconds!r}.")

    def after(self, instant: float) -> Iterator[float]:
        first = math.floor(instant / self.seconds) + 1
        return (round(n * self.seconds, 6) for n in itertools.count(first))

    def before(self, instant: float) -> Iterator[float]:
        last = math.ceil(instant / self.seconds) - 1
        return (round(n * self.seconds, 6) for n in itertools.count(last, -1))

    def describe(self) -> dict[str, Any]:
        return {"every": self.seconds, "words": f"every {self.seconds:g} s"}
