"""A redis adapter in a namespace of its own, which is deleted afterwards."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from nimbusq.driver import DriverSettings
from nimbusq_redis import RedisAdapter


class RedisEnv:
    """The first adapter, and others on the same store."""

    def __init__(self, adapter: RedisAdapter, stack: AsyncExitStack) -> None:
        self.adapter = adapter
        self._stack = stack

    async def advance(self, seconds: float) -> None:
        await self.adapter.advance(seconds)

    async def second(self) -> RedisAdapter:
        return await self._stack.enter_async_context(opened(self.adapter.clone()))

    async def audit(self) -> Sequence[Sequence[Any]]:
        return await self.adapter.audit()


@asynccontextmanager
async def opened(adapter: RedisAdapter) -> AsyncIterator[RedisAdapter]:
    await adapter.open()
    try:
        yield adapter
    finally:
        await adapter.aclose()


@asynccontextmanager
async def redis_env(
    url: str,
    *,
    testing: bool = True,
    prefix: str | None = None,
    options: Mapping[str, Any] | None = None,
    dropped: bool = True,
) -> AsyncIterator[RedisEnv]:
    """dropped: the namespace goes at the end."""
    prefix = prefix or f"t{secrets.token_hex(8)}"
    settings = DriverSettings(prefix=prefix, testing=testing, options=options or {})
    async with AsyncExitStack() as stack:
        adapter = await stack.enter_async_context(opened(RedisAdapter.from_url(url, settings)))
        try:
            yield RedisEnv(adapter, stack)
        finally:
            if dropped:
                await drop(adapter)


async def keys(adapter: RedisAdapter) -> list[str]:
    """The names of all keys of the adapter's namespace, without its root."""
    root = adapter.link.key("")
    found = {key.decode() async for key in adapter.link.client.scan_iter(match=f"{root}*", count=5000)}
    return sorted(key.removeprefix(root) for key in found)


async def drop(adapter: RedisAdapter) -> None:
    if names := await keys(adapter):
        await adapter.link.command("UNLINK", *(adapter.link.key(name) for name in names))
