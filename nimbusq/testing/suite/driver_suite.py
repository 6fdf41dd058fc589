"""All parts in one class, with the fixtures that they share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from nimbusq.testing.audit import check
from nimbusq.testing.suite.audit import AuditSuite
from nimbusq.testing.suite.batch_ends import BatchEndSuite
from nimbusq.testing.suite.batches import BatchSuite
from nimbusq.testing.suite.chains import ChainSuite
from nimbusq.testing.suite.claim import ClaimSuite
from nimbusq.testing.suite.control import ControlSuite
from nimbusq.testing.suite.endings import EndingSuite
from nimbusq.testing.suite.env import Env
from nimbusq.testing.suite.failed import FailedSuite
from nimbusq.testing.suite.faults import FaultSuite
from nimbusq.testing.suite.hands import Hands
from nimbusq.testing.suite.jobs import JobsSuite
from nimbusq.testing.suite.lease import LeaseSuite
from nimbusq.testing.suite.limiter import LimiterSuite
from nimbusq.testing.suite.locker import LockerSuite
from nimbusq.testing.suite.machine import ModelSuite
from nimbusq.testing.suite.order import OrderSuite
from nimbusq.testing.suite.overlap import OverlapSuite
from nimbusq.testing.suite.push import PushSuite
from nimbusq.testing.suite.putback import PutBackSuite
from nimbusq.testing.suite.rates import RateSuite
from nimbusq.testing.suite.raw import RawSuite
from nimbusq.testing.suite.records import RecordSuite
from nimbusq.testing.suite.schedules import ScheduleSuite
from nimbusq.testing.suite.settle import SettleSuite
from nimbusq.testing.suite.unique import UniqueLockSuite, UniqueSuite
from nimbusq.testing.suite.waiting import WaitingSuite
from nimbusq.testing.suite.workers import WorkerSuite


class DriverSuite(
    PushSuite,
    ClaimSuite,
    OrderSuite,
    WaitingSuite,
    LeaseSuite,
    SettleSuite,
    PutBackSuite,
    EndingSuite,
    UniqueSuite,
    UniqueLockSuite,
    OverlapSuite,
    RateSuite,
    BatchSuite,
    BatchEndSuite,
    ChainSuite,
    FailedSuite,
    RecordSuite,
    JobsSuite,
    ControlSuite,
    ScheduleSuite,
    LockerSuite,
    LimiterSuite,
    WorkerSuite,
    RawSuite,
    FaultSuite,
    AuditSuite,
    ModelSuite,
):
    """Inherit it, and supply the fixture ``env``; see `nimbusq.testing.suite`.

    tick: the unit of time of the tests in seconds, well above what a test takes on a store with a real clock.
    patience: seconds that a claim may take to see a job that was just pushed.
    """

    tick: ClassVar[float] = 10.0
    patience: ClassVar[float] = 0.0

    @pytest.fixture
    def hands(self, env: Env) -> Hands:
        return Hands(env=env, adapter=env.adapter, tick=self.tick, patience=self.patience)

    @pytest.fixture(autouse=True)
    async def _audited(self, env: Env) -> AsyncIterator[None]:
        """What the store did in the test was allowed, whatever the test looked at."""
        yield
        assert check(await env.audit()) == []
