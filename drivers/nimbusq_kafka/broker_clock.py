"""The brokers' clock, as far as it can be known: Kafka answers no question about its time.

It stamps every record when it appends it (``message.timestamp.type=LogAppendTime``), so whoever sees such a stamp
knows a time that has passed there. That is a lower bound, exact to the way back, and a job is due when the lower
bound says so: never early by the brokers' clock, and late by a network latency.
"""

from __future__ import annotations

from typing import Final

from nimbusq.clock import Clock

FRESH: Final = 60.0
"""Seconds for which a stamp is believed: clocks drift, and are set."""


class BrokerClock:
    """Owned by one event loop, which feeds it every stamp that it sees."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = 0.0
        self._seen_at: float | None = None

    def now(self) -> float:
        """Seconds since the epoch; this machine's as long as no stamp has been seen."""
        if self._seen_at is None:
            return self._clock.time()
        return self._clock.monotonic() + self._offset

    def saw(self, stamp: float) -> None:
        """The brokers have appended a record at that time, which has just been learnt."""
        now = self._clock.monotonic()
        if self._seen_at is None or stamp - now >= self._offset or now - self._seen_at > FRESH:
            self._offset, self._seen_at = stamp - now, now

    @property
    def stale(self) -> bool:
        """It is time to ask again."""
        return self._seen_at is None or self._clock.monotonic() - self._seen_at > FRESH / 2
