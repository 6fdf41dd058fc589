"""No queue at all: an aiokafka consumer that runs its records one by one, or what it got at once."""

from __future__ import annotations

import asyncio
import json

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.peer import KINDS, Peer, chunks

COMMIT_EVERY = 500
"""Records of the plain loop."""


class KafkaLoop(Peer):
    """``async for``, and a commit every 500 records: what a consumer costs that keeps nothing in hand."""

    async def install(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.place.url)
        await admin.start()
        await admin.create_topics([NewTopic(name=self.place.name, num_partitions=4, replication_factor=1)])
        await admin.close()

    async def connect(self) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self.place.url, acks="all", enable_idempotence=True
        )
        await self._producer.start()

    async def aclose(self) -> None:
        await self._producer.stop()

    async def send(self, kind: str, i: int) -> None:
        await self._producer.send_and_wait(self.place.name, _body(kind, i))

    async def send_many(self, kind: str, numbers: range) -> None:
        for chunk in chunks(numbers):
            await asyncio.gather(*[await self._producer.send(self.place.name, _body(kind, i)) for i in chunk])

    async def work(self, concurrency: int) -> None:  # noqa: ARG002 - it has none
        async with self.consumer() as consumer:
            count = 0
            async for record in consumer:
                await _run(record)
                count += 1
                if count % COMMIT_EVERY == 0:
                    await consumer.commit()

    def consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            self.place.name,
            bootstrap_servers=self.place.url,
            group_id=self.place.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )


class KafkaPolls(KafkaLoop):
    """Polls, as many records as there are slots, that run side by side; one commit for each poll."""

    async def work(self, concurrency: int) -> None:
        async with self.consumer() as consumer:
            while True:
                polled = await consumer.getmany(timeout_ms=1000, max_records=concurrency)
                await asyncio.gather(*[_run(record) for records in polled.values() for record in records])
                if polled:
                    await consumer.commit()


def _body(kind: str, i: int) -> bytes:
    return json.dumps({"kind": kind, "i": i}).encode()


async def _run(record: ConsumerRecord[bytes, bytes]) -> None:
    job = json.loads(record.value or b"")
    await KINDS[job["kind"]](job["i"])
