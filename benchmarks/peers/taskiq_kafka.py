"""taskiq on Kafka, by taskiq-aio-kafka."""

from __future__ import annotations

from aiokafka.admin import NewTopic
from taskiq import AsyncBroker
from taskiq_aio_kafka import AioKafkaBroker

from benchmarks.peers.taskiq import TaskiqList


class TaskiqKafka(TaskiqList):
    def make_broker(self) -> AsyncBroker:
        topic = NewTopic(name=self.place.name, num_partitions=4, replication_factor=1)
        return AioKafkaBroker(bootstrap_servers=self.place.url, kafka_topic=topic, group_id=self.place.name)

    async def install(self) -> None:
        await self.connect()  # creates the topic
        await self.aclose()
