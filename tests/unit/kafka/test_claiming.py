"""How a claim is shared out among partitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

from aiokafka.structs import TopicPartition

from nimbusq.clock import SystemClock
from nimbusq.driver import Claimed, Lane, Want
from nimbusq.envelope import Envelope
from nimbusq_kafka.broker_clock import BrokerClock
from nimbusq_kafka.claiming import Claimer
from nimbusq_kafka.hands import Hands
from nimbusq_kafka.news import News
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.window import Window


class Committer:
    """Every commit succeeds; which partitions were in it."""

    def __init__(self) -> None:
        self.touched: list[set[int]] = []

    def touch(self, *partitions: Partition) -> None:
        self.touched.append({partition.tp.partition for partition in partitions})

    async def covered(self) -> None:
        await asyncio.sleep(0)


class Bench:
    """A claimer over four partitions of one queue."""

    def __init__(self, *waiting: int) -> None:
        self.partitions = [self._partition(number, count) for number, count in enumerate(waiting)]
        self.committer = Committer()
        member: Any = SimpleNamespace(
            committer=self.committer, news=News(), appetite=News(), ready_partitions=lambda _: self.partitions
        )
        self.claimer = Claimer(member, Hands(), BrokerClock(SystemClock()))

    def _partition(self, number: int, count: int) -> Partition:
        partition = Partition(TopicPartition("t", number), "q", None, Window(0))
        wire = Envelope(id="1", name="a.b", queue="q").to_wire()
        partition.accept(
            SimpleNamespace(topic="t", partition=number, offset=n, timestamp=0, value=wire, headers=())
            for n in range(count)
        )
        return partition

    async def claim(self, token: str, limit: int) -> Counter[int]:
        """How many jobs came from each partition."""
        lane = Lane(queue="q", limit=limit)
        claimed: Claimed = await self.claimer.claim(Want(token=token, limit=limit, lease=60.0, lanes=(lane,)))
        return Counter(claim.receipt.partition for claim in claimed.claims)


async def test_many_are_taken_in_equal_parts() -> None:
    bench = Bench(100, 100, 100, 100)
    assert await bench.claim("a", 100) == {0: 25, 1: 25, 2: 25, 3: 25}


async def test_a_handful_is_taken_from_one_partition_and_the_next_from_another() -> None:
    bench = Bench(100, 100, 100, 100)
    brought = [await bench.claim(token, 10) for token in "abcd"]
    assert sum(brought, Counter()) == {0: 10, 1: 10, 2: 10, 3: 10}
    assert [len(partitions) for partitions in bench.committer.touched] == [1, 1, 1, 1]


async def test_where_one_has_too_few_others_give_the_rest() -> None:
    bench = Bench(3, 0, 2, 1)
    assert await bench.claim("a", 10) == {0: 3, 2: 2, 3: 1}
