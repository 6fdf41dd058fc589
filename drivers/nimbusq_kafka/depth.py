"""How many jobs wait and run, read off the offsets: end minus committed minus finished ones above the committed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from nimbusq.driver import Depth
from nimbusq_kafka.cluster import Cluster
from nimbusq_kafka.config import DEADLINE, KafkaConfig
from nimbusq_kafka.topics import TopicNames
from nimbusq_kafka.troubles import translating
from nimbusq_kafka.window import Window


@dataclass(slots=True)
class Tally:
    """Of one queue."""

    pending: int = 0
    delayed: int = 0
    running: int = 0


class DepthMeter:
    """A consumer of no group, for its questions only. Owned by one event loop; connects at its first use."""

    def __init__(self, config: KafkaConfig, names: TopicNames, cluster: Cluster) -> None:
        self._config = config
        self._names = names
        self._cluster = cluster
        self._consumer: Any = None
        self._opening = asyncio.Lock()

    async def aclose(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    async def measure(self, queues: Sequence[str]) -> list[Depth]:
        """The depth of each queue, in order; one without topics is empty."""
        consumed = self._names.consumed(queues)
        places = await self._places(list(consumed))
        committed = await self._cluster.committed(places)
        ends, begins = await self._offsets(places, [tp for tp in places if tp not in committed])
        tallies = {queue: Tally() for queue in queues}
        for tp in places:
            queue, delay = consumed[tp.topic]
            window, _ = Window.read(*committed.get(tp, (begins.get(tp, 0), "")))
            waiting = max(0, ends.get(tp, 0) - window.base - window.finished - len(window.running))
            tally = tallies[queue]
            tally.running += len(window.running)
            if delay is None:
                tally.pending += waiting
            else:
                tally.delayed += waiting
        return [_depth(queue, tallies[queue]) for queue in queues]

    async def _places(self, topics: Sequence[str]) -> list[TopicPartition]:
        existing = [topic for topic in topics if topic in await self._cluster.topics()]
        if not existing:
            return []
        return [
            TopicPartition(topic["topic"], partition["partition"])
            for topic in await self._cluster.describe(existing)
            for partition in topic["partitions"]
        ]

    async def _offsets(
        self, places: Sequence[TopicPartition], fresh: Sequence[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        """The end of each partition, and the beginning of those that nobody has committed for."""
        if not places:
            return {}, {}
        consumer = await self._connected()
        with translating("reading offsets"):
            async with asyncio.timeout(DEADLINE):
                ends = await consumer.end_offsets(places)
                return ends, await consumer.beginning_offsets(fresh) if fresh else {}

    async def _connected(self) -> Any:
        async with self._opening:
            if self._consumer is None:
                consumer = AIOKafkaConsumer(
                    **{"retry_backoff_ms": 10, **self._config.for_client()}
                )  # it backs off once a topic
                with translating("connecting"):
                    try:
                        async with asyncio.timeout(DEADLINE):
                            await consumer.start()
                    except BaseException:
                        await consumer.stop()
                        raise
                self._consumer = consumer
            return self._consumer


def _depth(queue: str, tally: Tally) -> Depth:
    return Depth(queue=queue, pending=tally.pending, delayed=tally.delayed, running=tally.running)
