"""This process as a member of the consumer group: what it subscribes to, and which partitions it has.

Rebalances are eager: at each one the whole group stops, hands everything back, and is dealt anew. A partition that
comes back to the member that had it, without anybody else having committed for it, goes on as if nothing had
happened, running jobs and all; one that comes to a new owner begins from what was committed for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

from nimbusq.errors import StoreError
from nimbusq_kafka.assignor import BusyAssignor, Place
from nimbusq_kafka.cluster import Cluster
from nimbusq_kafka.committer import Committer
from nimbusq_kafka.config import DEADLINE, MAX_POLL_INTERVAL_MS, KafkaConfig
from nimbusq_kafka.gate import Gate
from nimbusq_kafka.generation import Generation
from nimbusq_kafka.hands import Hands, Hold, Stage
from nimbusq_kafka.metadata import OWNER_BYTES
from nimbusq_kafka.news import News
from nimbusq_kafka.outbox import max_record
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.topics import DelayClass, TopicNames
from nimbusq_kafka.troubles import TROUBLES, translating
from nimbusq_kafka.window import Window

log = logging.getLogger("nimbusq.kafka")

GRACE: Final = 1.0
"""Seconds for which a rebalance waits for running jobs: most are shorter, and the whole group waits."""
FETCH_WAIT_MS: Final = 250
"""How long a fetch waits at a broker. Metadata requests queue behind it, and so does a rebalance; idle workers
pay for each."""
_RETRY: Final = 0.5


class Member:
    """Owned by the consumer's event loop. `news` rings when there may be something to claim."""

    def __init__(self, config: KafkaConfig, names: TopicNames, cluster: Cluster, hands: Hands) -> None:
        self._config = config
        self._names = names
        self._cluster = cluster
        self._hands = hands
        self._consumer: Any = None
        self._generation: Generation | None = None
        self._partitions: dict[TopicPartition, Partition] = {}
        self._topics: dict[str, tuple[str, DelayClass | None]] = {}
        self._assigned: Collection[TopicPartition] = ()
        self._epoch = 0
        """Counts revocations and assignments, so that what was begun in one is not finished in another."""
        self._dealt = asyncio.Event()
        self._subscribing = asyncio.Lock()
        self._standing = asyncio.Lock()
        self._committed_at_revoke = True
        self.void: Callable[[Iterable[Hold]], None] = lambda _: None
        """Takes back claims that no commit has carried; the claimer's."""
        self.queues: Set[str] = frozenset()
        """What is subscribed to."""
        self.steady = False
        """The partitions are this member's, and their windows are known."""
        self.owner = secrets.token_bytes(OWNER_BYTES)
        self.gate = Gate()
        self.news = News()
        self.appetite = News()
        """Rings when more partitions want to be read."""
        self.ended = News()
        """Rings when runs have ended."""
        self.committer = Committer(self.gate, self.owner, lambda: self._generation)

    # --- life --------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; the group is joined with the first subscription. Raises StoreUnavailable."""
        config = self._config
        consumer = AIOKafkaConsumer(
            **config.for_client(),
            group_id=self._names.group,
            group_instance_id=config.instance_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_min_bytes=1,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            max_partition_fetch_bytes=max(1_048_576, max_record(config)),
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            session_timeout_ms=int(config.session_timeout * 1000),
            heartbeat_interval_ms=int(config.session_timeout * 1000 / 3),
            rebalance_timeout_ms=int(config.rebalance_timeout * 1000),
            partition_assignment_strategy=[BusyAssignor(self._holdings)],
        )
        with translating("connecting"):
            try:
                async with asyncio.timeout(DEADLINE):
                    await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
        self._consumer = consumer
        self._generation = Generation(consumer)

    async def aclose(self) -> None:
        """Commit what is known and leave the group."""
        if self._consumer is None:
            return
        try:
            async with asyncio.timeout(DEADLINE):
                await self._stand_still(grace=0.0)
                await self._consumer.stop()
        except TROUBLES as error:
            log.warning("the consumer group was not left in good order: %s", error)

    async def subscribe(self, wanted: Callable[[], Set[str]]) -> None:
        """Read the queues that are wanted at that moment and no others, creating topics that are missing."""
        if wanted() == self.queues:
            return
        async with self._subscribing:
            queues = wanted()
            if queues == self.queues:
                return
            topics = self._names.consumed(queues)
            await self._cluster.ensure(queues)
            await self._stand_still(grace=0.0)  # with a new subscription aiokafka forgets the old assignment
            self._epoch += 1
            self._topics, self.queues = topics, queues
            self._consumer.subscribe(list(topics), listener=_Listener(self))

    # --- looking -----------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[Partition]:
        """What this member may work on now; nothing during a rebalance."""
        return list(self._partitions.values()) if self.steady else []

    def ready_partitions(self, queue: str) -> list[Partition]:
        return [p for p in self.partitions if p.queue == queue and p.delay is None]

    def delay_partitions(self) -> list[Partition]:
        return [p for p in self.partitions if p.delay is not None]

    async def until_steady(self) -> None:
        """Wait until the group has been dealt anew; a refused commit may be the first sign that it will be."""
        await asyncio.sleep(0.05)
        while not self.steady:
            await self.news.listen().wait()

    def _holdings(self) -> tuple[list[Place], list[Place]]:
        """What this member tells the group when it joins."""
        if not self._committed_at_revoke:
            return [], []
        return list(self._partitions), [tp for tp, p in self._partitions.items() if p.window.running]

    # --- reading -----------------------------------------------------------------------------------------------

    async def read(self, partitions: Sequence[Partition], *, timeout: float, most: int) -> None:
        """Move up to `most` records into the partitions' inboxes, waiting up to `timeout` seconds for the first.

        Cancelling it loses nothing.
        """
        places = [partition.tp for partition in partitions]
        with translating("reading"):
            found = await self._consumer.getmany(*places, timeout_ms=int(timeout * 1000), max_records=most)
        for tp, records in found.items():
            if (partition := self._partitions.get(tp)) is not None:
                partition.accept(records)

    # --- rebalances --------------------------------------------------------------------------------------------

    async def revoke(self) -> None:
        """The group is about to be dealt anew: stop claiming, let short runs end, commit."""
        await self._stand_still(grace=GRACE)

    async def _stand_still(self, *, grace: float) -> None:
        self._epoch += 1
        self._dealt.clear()
        async with self._standing:
            if not self.steady:
                return
            self.steady = False
            await self._let_runs_end(grace)
            await self.gate.close()
            self.void(self._hands.at(Stage.CLAIMED))
            self._committed_at_revoke = await self.committer.commit()

    async def _let_runs_end(self, grace: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while any(partition.window.running for partition in self._partitions.values()):
                    await self.ended.listen().wait()

    def deal(self, assigned: Collection[TopicPartition]) -> None:
        """The group has been dealt; `run` looks up what is known of the partitions."""
        assert self._generation is not None, "nothing is dealt to a member that has not started"
        self._generation.take_up()
        self._epoch += 1
        self._assigned = frozenset(assigned)
        self._dealt.set()

    async def run(self) -> None:
        """Take up each new assignment, until cancelled.

        Not in aiokafka's callback, during which no heartbeat is sent. What was committed before cannot change any
        more: the brokers refuse commits of earlier generations.
        """
        while True:
            await self._dealt.wait()
            self._dealt.clear()
            epoch, assigned = self._epoch, self._assigned
            try:
                committed = await self._cluster.committed(assigned)
                begins = await self._beginnings(assigned - committed.keys())
            except StoreError as error:
                log.warning("cannot take up %d partitions yet: %s", len(assigned), error)
                await asyncio.sleep(_RETRY)
                if epoch == self._epoch:
                    self._dealt.set()
                continue
            if epoch == self._epoch:
                self._take_up(assigned, {**{tp: (offset, "") for tp, offset in begins.items()}, **committed})

    async def _beginnings(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not places:
            return {}
        with translating("looking for the first records"):
            async with asyncio.timeout(DEADLINE):
                found: dict[TopicPartition, int] = await self._consumer.beginning_offsets(places)
                return found

    def _take_up(
        self, assigned: Collection[TopicPartition], committed: dict[TopicPartition, tuple[int, str]]
    ) -> None:
        before, self._partitions = self._partitions, {}
        for tp in assigned:
            window, owner = Window.read(*committed[tp])
            mine = before.get(tp)
            if mine is None or owner != self.owner:
                mine = Partition(tp, *self._topics[tp.topic], window)
                self.committer.touch(mine)  # says whose it is now, and keeps the count of lost runs
            self._partitions[tp] = mine
            self._consumer.seek(tp, mine.seen)
        gone = [partition for tp, partition in before.items() if self._partitions.get(tp) is not partition]
        for partition in gone:
            partition.alive = False
        if lost := self._hands.drop_all_of(gone):
            log.warning("%d running jobs were on partitions that another worker has now", len(lost))
        self.steady = True
        self.gate.open()
        self.news.ring()
        self.appetite.ring()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's callbacks."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:  # noqa: ARG002 - always all
        await self._member.revoke()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._member.deal(assigned)
