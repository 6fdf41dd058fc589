"""Tools for tests: a queue on the desk, a clock that a test moves, failing networks, the audit checker and the
driver suite."""

from nimbusq.testing.clock import FakeClock
from nimbusq.testing.desk import Desk

__all__ = ["Desk", "FakeClock"]
