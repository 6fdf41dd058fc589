"""What the unit tests of the sqs driver share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nimbusq.testing.suite.hands import Hands
from tests.unit.sqs.stub import Desk


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """An opened adapter on a stubbed client."""
    desk = Desk()
    await desk.adapter.open()
    desk.sqs.calls.clear()
    yield desk
    await desk.adapter.aclose()


@pytest.fixture
def hands(desk: Desk) -> Hands:
    """Short words for the calls; a tick is 10 s of the fake clock."""
    return Hands(env=DeskEnv(desk), adapter=desk.adapter, tick=10.0)


class DeskEnv:
    """Time as the fake clock has it."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.adapter = desk, desk.adapter

    async def advance(self, seconds: float) -> None:
        await self.desk.clock.advance(seconds)

    async def second(self) -> object:
        raise NotImplementedError

    async def audit(self) -> list[object]:
        return []
