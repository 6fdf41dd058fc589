"""asyncpg's pool, with deadlines that hold and connections that are not trusted after a cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from nimbusq.errors import StoreUnavailable
from nimbusq_database.postgres.address import PostgresAddress
from nimbusq_database.postgres.failures import leaves_connection_sound


class Connections:
    """Connections on demand, each used by one task at a time."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._pool: Any = None

    async def open(self) -> None:
        """Make the pool; the first connection is made when it is needed."""
        self._pool = await asyncpg.create_pool(
            min_size=0, max_size=self._address.pool_size, reset=_keep, **connect_options(self._address)
        )

    async def aclose(self) -> None:
        """End the idle connections, and cut those in use."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(1.0):
                await pool.close()
        except TimeoutError:
            pool.terminate()

    @asynccontextmanager
    async def one(self, until: float) -> AsyncIterator[Any]:
        """A connection until a time of the loop's clock.

        Unless the server has answered, the connection is cut at once: asyncpg would ask the server to cancel and
        wait for it, for ever if it is frozen, and what is under way could be answered to the next user.
        """
        if self._pool is None:
            raise StoreUnavailable(f"{self._address.shown} is not open.")
        pool = self._pool
        async with asyncio.timeout_at(until):
            connection = await pool.acquire()
            try:
                yield connection
            except BaseException as error:
                if not leaves_connection_sound(error):
                    connection.terminate()
                raise
            finally:
                await pool.release(connection)


def connect_options(address: PostgresAddress) -> dict[str, Any]:
    """How every connection is made."""
    options: dict[str, Any] = {
        "dsn": address.dsn,
        "statement_cache_size": address.statement_cache_size,
        "timeout": 5.0,
    }
    if not address.pooled:  # a pooler refuses settings that it does not know
        options["server_settings"] = {"application_name": "nimbusq", "jit": "off"}
    return options


async def _keep(_connection: Any) -> None:
    """Nothing of a session is ever changed, so nothing is reset: that would cost a round trip a call."""
