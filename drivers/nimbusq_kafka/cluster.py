"""The cluster as an administrator sees it: topics and a group's commits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import TopicPartition

from nimbusq.errors import SchemaMismatch, StoreError, StoreUnavailable
from nimbusq_kafka.config import DEADLINE, KafkaConfig
from nimbusq_kafka.outbox import max_record
from nimbusq_kafka.topics import DELAYS, TopicNames
from nimbusq_kafka.troubles import translating

_TOPIC_EXISTS: Final = 36
_NO_LEADER: Final = -1


class Cluster:
    """An admin client. Owned by one event loop; connects at its first use."""

    def __init__(self, config: KafkaConfig, names: TopicNames) -> None:
        self._config = config
        self._names = names
        self._admin: Any = None
        self._opening = asyncio.Lock()
        self._known: set[str] = set()
        """Queues whose topics exist."""

    async def aclose(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    async def client(self) -> Any:
        """The connected client. Raises StoreUnavailable."""
        async with self._opening:
            if self._admin is None:
                admin = AIOKafkaAdminClient(**self._config.for_client())
                with translating("connecting"):
                    try:
                        async with asyncio.timeout(DEADLINE):
                            await admin.start()
                    except BaseException:
                        await admin.close()
                        raise
                self._admin = admin
            return self._admin

    # --- topics ------------------------------------------------------------------------------------------------

    async def ensure(self, queues: Iterable[str]) -> None:
        """See that the queues' topics exist. Raises SchemaMismatch where they do not and must not be created."""
        if not (unknown := [queue for queue in dict.fromkeys(queues) if queue not in self._known]):
            return
        missing = self.wanted(unknown).keys() - await self.topics()
        if missing and not self._config.create_topics:
            raise SchemaMismatch(
                f"Kafka has no topic {min(missing)!r}: run `nimbusq migrate up`, "
                "or let kafka_create_topics create it."
            )
        await self.setup(unknown)

    async def setup(self, queues: Iterable[str]) -> None:
        """Create the topics that are missing, and wait until each partition has a leader."""
        queues = list(queues)
        wanted = self.wanted(queues)
        missing = sorted(wanted.keys() - await self.topics())
        if missing:
            await self._create([self._new_topic(topic, wanted[topic]) for topic in missing])
            await self._until_led(missing)
        self._known.update(queues)

    def wanted(self, queues: Iterable[str]) -> dict[str, int]:
        """Every topic that the queues need, and its number of partitions."""
        config, names = self._config, self._names
        topics = {names.clock: 1}
        for queue in queues:
            topics[names.ready(queue)] = config.partitions
            topics[names.failed(queue)] = 1
            topics |= dict.fromkeys(
                (names.delayed(queue, delay) for delay in DELAYS), config.delay_partitions
            )
        return topics

    async def topics(self) -> set[str]:
        """All topics of the cluster: asking for single ones could create them with the broker's defaults."""
        admin = await self.client()
        with translating("listing topics"):
            async with asyncio.timeout(DEADLINE):
                return set(await admin.list_topics())

    def settings_of(self, topic: str) -> dict[str, str]:
        """The topic's own configuration."""
        if topic == self._names.clock:
            return {"retention.ms": "60000", "message.timestamp.type": "LogAppendTime"}
        return {
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "cleanup.policy": "delete",
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(max_record(self._config)),
        }

    def _new_topic(self, name: str, partitions: int) -> Any:
        topic = NewTopic(
            name, partitions, self._config.replication or 1, topic_configs=self.settings_of(name)
        )
        if self._config.replication is None:
            topic.replication_factor = (
                -1
            )  # the broker's default (KIP-464), which the constructor does not allow
        return topic

    async def _create(self, topics: Sequence[Any]) -> None:
        admin = await self.client()
        with translating("creating topics"):
            async with asyncio.timeout(2 * DEADLINE):
                response = await admin.create_topics(topics, timeout_ms=int(DEADLINE * 1000))
        for name, code, *message in response.topic_errors:
            if code not in {0, _TOPIC_EXISTS}:
                text = next((text for text in message if text), f"error code {code}")
                raise StoreError(f"Kafka did not create the topic {name!r}: {text}")

    async def _until_led(self, topics: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(2 * DEADLINE):
                while not await self._are_led(topics):  # noqa: ASYNC110 - Kafka announces no leader
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            raise StoreUnavailable(
                "Kafka has created topics, but their partitions have no leaders."
            ) from error

    async def _are_led(self, topics: Sequence[str]) -> bool:
        found = await self.describe(topics)
        return len(found) == len(topics) and all(
            topic["partitions"] and all(part["leader"] != _NO_LEADER for part in topic["partitions"])
            for topic in found
        )

    async def describe(self, topics: Sequence[str]) -> list[dict[str, Any]]:
        """Kafka's description of topics that exist."""
        admin = await self.client()
        with translating("describing topics"):
            async with asyncio.timeout(DEADLINE):
                found = await admin.describe_topics(list(topics))
        return [topic for topic in found if not topic["error_code"]]

    async def configuration(self, kind: str, name: str) -> dict[str, str]:
        """The configuration of a "broker" or a "topic"."""
        admin = await self.client()
        with translating("reading configurations"):
            async with asyncio.timeout(DEADLINE):
                (response, *_) = await admin.describe_configs(
                    [ConfigResource(ConfigResourceType[kind.upper()], name)]
                )
        return {entry[0]: entry[1] for _, _, _, _, entries in response.resources for entry in entries}

    async def brokers(self) -> list[str]:
        """The brokers' ids."""
        admin = await self.client()
        with translating("describing the cluster"):
            async with asyncio.timeout(DEADLINE):
                return [str(broker["node_id"]) for broker in (await admin.describe_cluster())["brokers"]]

    # --- partitions --------------------------------------------------------------------------------------------

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        """The group's offset and metadata of each partition that has one.

        By the admin client, since ``consumer.committed()`` leaves out the metadata.
        """
        if not (wanted := list(partitions)):
            return {}
        admin = await self.client()
        with translating("reading the group's offsets"):
            async with asyncio.timeout(DEADLINE):
                found = await admin.list_consumer_group_offsets(self._names.group, partitions=wanted)
        return {tp: (entry.offset, entry.metadata or "") for tp, entry in found.items() if entry.offset >= 0}

    async def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Let Kafka forget the records below these offsets."""
        admin = await self.client()
        with translating("deleting records"):
            async with asyncio.timeout(DEADLINE):
                await admin.delete_records({tp: RecordsToDelete(offset) for tp, offset in offsets.items()})
