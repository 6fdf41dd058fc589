"""The sync driver in worker mode, on a fake clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from nimbusq.driver import DriverSettings
from nimbusq.testing import FakeClock
from nimbusq.testing.suite import DriverSuite
from nimbusq_sync import SyncAdapter
from nimbusq_sync.state import AuditTuple


@dataclass
class SyncEnv:
    """Clones see the same memory, as another thread would."""

    clock: FakeClock = field(default_factory=FakeClock)
    adapter: SyncAdapter = field(init=False)

    def __post_init__(self) -> None:
        self.adapter = SyncAdapter(inline=False, clock=self.clock, settings=DriverSettings(testing=True))

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def second(self) -> SyncAdapter:
        return self.adapter.clone()

    async def audit(self) -> list[AuditTuple]:
        return await self.adapter.audit()


class TestSync(DriverSuite):
    @pytest.fixture
    async def env(self) -> SyncEnv:
        return SyncEnv()
