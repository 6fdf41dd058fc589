"""A kafka adapter with topics and a consumer group of its own, deleted afterwards."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient

from nimbusq.driver import Done, DriverSettings, Lane, Settlement, Want
from nimbusq.envelope import Envelope
from nimbusq_kafka import KafkaAdapter

OPTIONS: Mapping[str, Any] = {"kafka_partitions": 1, "kafka_session_timeout": 3.0}


def fresh_prefix() -> str:
    return f"t{secrets.token_hex(8)}"


class KafkaEnv:
    """The first adapter, and others of the same group. Time passes by itself."""

    def __init__(self, adapter: KafkaAdapter, stack: AsyncExitStack, make: Any) -> None:
        self.adapter = adapter
        self._stack = stack
        self._make = make

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def second(self) -> KafkaAdapter:
        adapter: KafkaAdapter = await self._stack.enter_async_context(opened(self._make()))
        return adapter

    async def audit(self) -> Sequence[Sequence[Any]]:
        return await self.adapter.audit()


@asynccontextmanager
async def opened(adapter: KafkaAdapter) -> AsyncIterator[KafkaAdapter]:
    await adapter.open()
    try:
        yield adapter
    finally:
        await adapter.aclose()


@asynccontextmanager
async def kafka_env(
    brokers: str, *queues: str, prefix: str | None = None, joined: bool = True, **options: Any
) -> AsyncIterator[KafkaEnv]:
    """joined: the first adapter is a member of the group already, and has the partitions of the queues."""
    prefix = prefix or fresh_prefix()
    settings = DriverSettings(prefix=prefix, testing=True, options={**OPTIONS, **options})

    def make() -> KafkaAdapter:
        return KafkaAdapter.from_url(f"kafka://{brokers}", settings)

    try:
        async with AsyncExitStack() as stack:
            adapter = await stack.enter_async_context(opened(make()))
            await adapter.setup(queues)
            if joined:
                await join(adapter, *queues)
            yield KafkaEnv(adapter, stack, make)
    finally:
        await drop(brokers, prefix)


async def join(adapter: KafkaAdapter, *queues: str) -> None:
    """Become a member, and prove it by a job of the first queue."""
    lanes = tuple(Lane(queue=queue, limit=1) for queue in queues)
    await adapter.push([Envelope(id="join", name="Probe", queue=queues[0])])
    claimed = await adapter.claim(Want(token=secrets.token_hex(8), limit=1, lease=60, wait=20, lanes=lanes))
    await adapter.settle([Settlement(claim=claim, outcome=Done()) for claim in claimed.claims])


async def drop(brokers: str, prefix: str) -> None:
    """Delete the topics, so that the broker stays small."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await admin.start()
    try:
        topics = [topic for topic in await admin.list_topics() if topic.startswith(f"{prefix}.")]
        if topics:
            await admin.delete_topics(topics)
    finally:
        await admin.close()
