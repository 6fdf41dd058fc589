"""Tools for tests: a clock that a test moves, failing networks, the audit checker and the driver suite."""

from nimbusq.testing.clock import FakeClock

__all__ = ["FakeClock"]
