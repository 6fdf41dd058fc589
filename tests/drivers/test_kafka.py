"""The kafka driver: the whole suite of `nimbusq.testing.suite` on a real broker.

One limit shows in the suite: a partition, and with it the jobs in it, belongs to one member of the group. Two
tests that pass a job from one claimer to another say below how it gets there: its owner leaves the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from nimbusq.testing.suite import DriverSuite
from nimbusq.testing.suite.hands import Hands, ids
from tests.drivers.kafka_env import KafkaEnv, kafka_env

pytestmark = pytest.mark.kafka


class TestKafka(DriverSuite):
    tick = 1.0
    patience = 0.7
    examples = 20
    steps = 20

    @pytest.fixture
    async def env(self, kafka_brokers: str) -> AsyncIterator[KafkaEnv]:
        async with kafka_env(kafka_brokers, "probe") as env:
            yield env

    async def test_another_process_sees_the_job(self, hands: Hands) -> None:
        sent = await hands.push()
        await hands.adapter.aclose()
        other = replace(await hands.other(), patience=20.0)
        claim = await other.take()
        assert claim.id == sent.id
        await other.finish(claim)

    async def test_of_two_waiting_claims_each_job_wakes_one(self, hands: Hands) -> None:
        """The first claim gets the first job; the second job is its member's too, until that one leaves."""
        other = await hands.other()
        first, second = (asyncio.ensure_future(side.claim(wait=20)) for side in (hands, other))
        sent = [await hands.push()]
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        winner, left = (hands, second) if first.done() else (other, first)
        claims = (first if first.done() else second).result()
        await winner.finish(claims[0])
        sent.append(await hands.push())
        await winner.adapter.aclose()
        assert ids(claims + await left) == ids(sent)
