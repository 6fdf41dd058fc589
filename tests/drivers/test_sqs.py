"""The sqs driver: the suite of `nimbusq.testing.suite` on a real endpoint, in real time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nimbusq.driver import Retry
from nimbusq.testing.suite import DriverSuite
from nimbusq.testing.suite.hands import Hands
from tests.drivers.sqs_env import SqsEnv, new_session, sqs_env

pytestmark = pytest.mark.sqs


class TestSqs(DriverSuite):
    tick = 1.0

    @pytest.fixture
    async def env(self, sqs_endpoint: str) -> AsyncIterator[SqsEnv]:
        async with sqs_env(sqs_endpoint, session=new_session()) as env:
            yield env

    async def test_a_retry_is_due_after_its_delay_and_counted(self, hands: Hands) -> None:
        """As the suite says it, but for the depth: SQS counts a message that waits for its retry as in flight."""
        sent = await hands.push()
        await hands.finish(await hands.take(), Retry(2 * hands.tick, "boom"))
        assert await hands.counts() == (0, 0, 1)
        await hands.pass_ticks(0.9)
        assert await hands.claim(wait=0) == []
        await hands.pass_ticks(1.2)
        claim = await hands.take()
        assert (claim.id, claim.attempt, claim.releases, claim.reclaimed) == (sent.id, 2, 0, False)
        assert claim.envelope == sent
