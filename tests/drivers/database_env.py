"""One adapter of the database driver in a namespace of its own, for the suite."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from nimbusq.driver import DriverSettings
from nimbusq_database import DatabaseAdapter


@dataclass
class DatabaseEnv:
    """`nimbusq.testing.suite.Env`: the store's clock has a skew that the test moves."""

    adapter: DatabaseAdapter
    url: str
    settings: DriverSettings
    opened: AsyncExitStack

    async def advance(self, seconds: float) -> None:
        await self.adapter.advance(seconds)

    async def second(self) -> DatabaseAdapter:
        """As another process: nothing is shared but the database."""
        other = DatabaseAdapter.from_url(self.url, self.settings)
        await other.open()
        self.opened.push_async_callback(other.aclose)
        return other

    async def audit(self) -> list[tuple[str, str, str, int, str]]:
        return await self.adapter.audit()


@asynccontextmanager
async def database_env(url: str) -> AsyncIterator[DatabaseEnv]:
    """An opened adapter whose tables are dropped at the end."""
    settings = DriverSettings(prefix=f"t{secrets.token_hex(6)}", testing=True)
    adapter = DatabaseAdapter.from_url(url, settings)
    await adapter.setup([])
    await adapter.open()
    async with AsyncExitStack() as opened:
        opened.push_async_callback(_drop, adapter)
        yield DatabaseEnv(adapter, url, settings, opened)


async def _drop(adapter: DatabaseAdapter) -> None:
    await adapter.migrations.down(0)
    await adapter.aclose()
