"""taskiq on Kafka, by taskiq-aio-kafka."""

from __future__ import annotations

from kafka.admin import NewTopic
from taskiq import AsyncBroker
from taskiq_aio_kafka import AioKafkaBroker

from benchmarks.peers.taskiq import TaskiqPeer


class TaskiqKafka(TaskiqPeer):
    def make_broker(self) -> AsyncBroker:
        topic = NewTopic(self.place.name, num_partitions=4, replication_factor=1)
        broker = AioKafkaBroker(bootstrap_servers=self.place.url, kafka_topic=topic)
        broker.configure_consumer(group_id=self.place.name, auto_offset_reset="earliest")
        return broker

    async def install(self) -> None:
        await self.connect()  # creates the topic
        await self.aclose()
