"""The conformance suite: what every driver must do, as tests that a driver's test file inherits.

A driver's test file supplies one async fixture and one class::

    class Env:
        def __init__(self, adapter): self.adapter = adapter
        async def advance(self, seconds): ...      # let the store's time pass
        async def second(self): ...                # another opened adapter on the same store
        async def audit(self): ...                 # every transition so far

    class TestMyDriver(DriverSuite):
        tick = 10.0                                # seconds; leases in the tests last three ticks

        @pytest.fixture
        async def env(self):
            adapter = MyAdapter(..., settings=DriverSettings(prefix=fresh_name(), testing=True))
            await adapter.setup(["probe"])
            await adapter.open()
            yield Env(adapter)
            await adapter.aclose()

It needs pytest, pytest-asyncio (with ``asyncio_mode = "auto"``) and hypothesis. What a driver lacks is not
skipped but asserted to be refused. After each test the store's audit is replayed (`nimbusq.testing.audit`).
docs/writing_a_driver.md tells the whole story, with a driver that works.
"""

import pytest

_PARTS = (
    "hands",
    "needs",
    "push",
    "claim",
    "order",
    "lease",
    "settle",
    "putback",
    "endings",
    "unique",
    "overlap",
    "rates",
    "batches",
    "batch_ends",
    "chains",
    "failed",
    "records",
    "jobs",
    "control",
    "schedules",
    "locker",
    "limiter",
    "workers",
    "raw",
    "waiting",
    "faults",
    "audit",
    "model",
    "machine",
    "driver_suite",
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from nimbusq.testing.suite.driver_suite import DriverSuite  # noqa: E402  # after the registration above
from nimbusq.testing.suite.env import AdapterUnderTest, Env  # noqa: E402  # likewise

__all__ = ["AdapterUnderTest", "DriverSuite", "Env"]
