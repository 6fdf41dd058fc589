"""The client's pool, with deadlines that hold and connections that are not trusted after a cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from nimbusq.errors import StoreUnavailable
from nimbusq_database.mysql.address import MysqlAddress
from nimbusq_database.mysql.failures import leaves_connection_sound

LIBRARY: Final = "asyncmy" if find_spec("asyncmy") else "aiomysql"
_client: Any = import_module(LIBRARY)


class Connections:
    """Connections on demand, each used by one task at a time. A statement commits by itself unless one begins."""

    def __init__(self, address: MysqlAddress) -> None:
        self._address = address
        self._pool: Any = None

    async def open(self) -> None:
        """Make the pool; the first connection is made when it is needed."""
        self._pool = await _client.create_pool(
            minsize=0,
            maxsize=self._address.pool_size,
            autocommit=True,
            charset="utf8mb4",
            connect_timeout=5,
            init_command="set session transaction isolation level read committed",
            **self._address.options,
        )

    async def aclose(self) -> None:
        """End the idle connections, and cut those in use."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        pool.close()
        try:
            async with asyncio.timeout(1.0):
                await pool.wait_closed()
        except TimeoutError:
            pool.terminate()

    @asynccontextmanager
    async def one(self, until: float) -> AsyncIterator[Any]:
        """A connection until a time of the loop's clock; cut at once unless the server has answered."""
        if self._pool is None:
            raise StoreUnavailable(f"{self._address.shown} is not open.")
        pool = self._pool
        async with asyncio.timeout_at(until):
            connection = await pool.acquire()
            try:
                yield connection
            except BaseException as error:
                if not leaves_connection_sound(error):
                    connection.close()
                raise
            finally:
                await _released(pool.release(connection))


async def _released(answer: Any) -> None:
    """aiomysql answers a future, asyncmy a coroutine."""
    if answer is not None:
        await answer
