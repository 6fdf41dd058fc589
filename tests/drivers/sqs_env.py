"""An sqs adapter with queues of its own, which are deleted afterwards."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aioboto3

from nimbusq.driver import DriverSettings
from nimbusq_sqs import SqsAdapter


@functools.cache
def new_session() -> Any:
    """One for all clients, since it reads the description of the service once; with what a client asks for, and a
    server for tests does not look at."""
    return aioboto3.Session(region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")


class SqsEnv:
    """The first adapter, and others on the same queues. Time is real: SQS has no clock that a test could move."""

    def __init__(self, adapter: SqsAdapter, stack: AsyncExitStack) -> None:
        self.adapter = adapter
        self._stack = stack

    async def advance(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def second(self) -> SqsAdapter:
        return await self._stack.enter_async_context(opened(self.adapter.clone()))

    async def audit(self) -> Sequence[Sequence[Any]]:
        return await self.adapter.audit()


@asynccontextmanager
async def opened(adapter: SqsAdapter) -> AsyncIterator[SqsAdapter]:
    await adapter.open()
    try:
        yield adapter
    finally:
        await adapter.aclose()


@asynccontextmanager
async def sqs_env(endpoint_url: str, **options: Any) -> AsyncIterator[SqsEnv]:
    settings = DriverSettings(prefix=fresh_prefix(), testing=True)
    adapter = SqsAdapter(endpoint_url=endpoint_url, settings=settings, **options)
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(opened(adapter))
            yield SqsEnv(adapter, stack)
    finally:
        await drop(adapter, settings.prefix)


def fresh_prefix() -> str:
    return f"t{secrets.token_hex(6)}"


async def drop(adapter: SqsAdapter, prefix: str) -> None:
    """Delete all queues of the prefix."""
    async with opened(adapter):
        found = await adapter.client.call("list_queues", QueueNamePrefix=prefix)
        for url in found.get("QueueUrls", ()):
            await adapter.client.call("delete_queue", QueueUrl=url)
