"""How a claim is shared out among partitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from aiokafka.structs import TopicPartition

from nimbusq.clock import SystemClock
from nimbusq.driver import Claim, Ending, Lane, Want
from nimbusq.envelope import Envelope
from nimbusq_kafka.broker_clock import BrokerClock
from nimbusq_kafka.claiming import Claimer
from nimbusq_kafka.hands import Hands, Stage
from nimbusq_kafka.news import News
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.window import Window


class Committer:
    """Every commit succeeds; which partitions were in it, and what happens while the next one is under way."""

    def __init__(self) -> None:
        self.touched: list[set[int]] = []
        self.meanwhile: Callable[[], None] | None = None

    def touch(self, *partitions: Partition) -> None:
        self.touched.append({partition.tp.partition for partition in partitions})

    async def covered(self) -> None:
        await asyncio.sleep(0)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()


class Bench:
    """A claimer over four partitions of one queue."""

    def __init__(self, *waiting: int) -> None:
        self.partitions = [self._partition(number, count) for number, count in enumerate(waiting)]
        self.committer = Committer()
        member: Any = SimpleNamespace(
            committer=self.committer, news=News(), appetite=News(), ready_partitions=lambda _: self.partitions
        )
        self.hands = Hands()
        self.claimer = Claimer(member, self.hands, BrokerClock(SystemClock()))

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
        return Counter(claim.receipt.partition for claim in await self.claim_all(token, limit))

    async def claim_all(self, token: str, limit: int) -> Sequence[Claim]:
        lane = Lane(queue="q", limit=limit)
        claimed = await self.claimer.claim(Want(token=token, limit=limit, lease=60.0, lanes=(lane,)))
        return claimed.claims


async def test_many_are_taken_in_equal_parts() -> None:
    bench = Bench(100, 100, 100, 100)
    assert await bench.claim("a", 200) == {0: 50, 1: 50, 2: 50, 3: 50}


async def test_not_so_many_come_from_so_few_partitions_that_each_gives_a_handful() -> None:
    bench = Bench(100, 100, 100, 100)
    brought = [await bench.claim(token, 70) for token in "ab"]
    assert [sorted(each.values()) for each in brought] == [[35, 35], [35, 35]]


async def test_a_handful_is_taken_from_one_partition_and_the_next_from_another() -> None:
    bench = Bench(100, 100, 100, 100)
    brought = [await bench.claim(token, 10) for token in "abcd"]
    assert sum(brought, Counter()) == {0: 10, 1: 10, 2: 10, 3: 10}
    assert [len(partitions) for partitions in bench.committer.touched] == [1, 1, 1, 1]


async def test_where_one_has_too_few_others_give_the_rest() -> None:
    bench = Bench(3, 0, 2, 1)
    assert await bench.claim("a", 10) == {0: 3, 2: 2, 3: 1}


async def test_the_next_ones_are_decoded_while_the_commit_is_under_way() -> None:
    bench = Bench(100)
    (partition,) = bench.partitions
    await bench.claim("a", 10)
    assert sorted(partition.decoded) == list(range(10, 20))
    decoded = partition.decoded[10]
    claims = await bench.claim_all("b", 10)
    assert claims[0].envelope is decoded
    assert sorted(partition.decoded) == list(range(20, 30))


async def test_endings_take_no_slot_and_are_50_at_most() -> None:
    bench = Bench(100)
    (partition,) = bench.partitions
    for offset in range(60):
        partition.window.lost[offset] = 4  # as often as the job may run
    first = await bench.claim_all("a", 70)
    assert [claim.ending for claim in first] == [Ending.LOST] * 50
    second = await bench.claim_all("b", 5)
    assert [claim.ending for claim in second] == [Ending.LOST] * 10 + [None] * 5
    assert [claim.receipt.offset for claim in second] == list(range(50, 65))


async def test_what_a_rebalance_voids_during_its_commit_is_not_handed_out() -> None:
    bench = Bench(10)
    voided: list[Claim] = []

    def void() -> None:
        holds = bench.hands.at(Stage.CLAIMED)
        voided.extend(hold.claim for hold in holds)
        bench.claimer.void(holds)

    bench.committer.meanwhile = void
    claims = await bench.claim_all("a", 3)
    assert [claim.receipt.offset for claim in voided] == [0, 1, 2]
    assert [claim.receipt.offset for claim in claims] == [0, 1, 2], "claimed anew, and committed anew"
    assert not {id(claim) for claim in claims} & {id(claim) for claim in voided}
    assert all(bench.hands.holds(claim) for claim in claims)
    assert len(bench.committer.touched) == 5, "a claim, three voids, a claim"
