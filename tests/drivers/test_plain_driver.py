"""The driver of docs/writing_a_driver.md: the suite runs on a driver that lacks nearly everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from examples.plain_driver import PlainAdapter
from nimbusq.testing import FakeClock
from nimbusq.testing.suite import DriverSuite


@dataclass
class PlainEnv:
    clock: FakeClock = field(default_factory=FakeClock)
    adapter: PlainAdapter = field(init=False)

    def __post_init__(self) -> None:
        self.adapter = PlainAdapter(self.clock)

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def second(self) -> PlainAdapter:
        return self.adapter.clone()

    async def audit(self) -> list[Any]:
        return []


class TestPlain(DriverSuite):
    @pytest.fixture
    async def env(self) -> PlainEnv:
        return PlainEnv()
