"""The client behind each topology: no retries of its own, no time limits of its own.

redis-py re-sends a command whose reply was lost, up to ten times by default, and waits minutes on a frozen server;
here every call has one deadline (see link.py), and whoever calls decides what to do next.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from nimbusq.errors import ConfigError
from nimbusq_redis.options import RedisOptions

_MAX_CONNECTIONS: Final = 512
_TRUSTED: Final = 1.0
"""Seconds for which a connection that has just answered is taken again without a look at its socket."""


class Server(Protocol):
    """Whoever answers commands."""

    client: Any
    """The redis-py client."""

    async def call(self, *command: Any, after: Sequence[Any] | None = None) -> Any:
        """One command, one answer. Raises redis-py's errors.

        after: a command to go out before it; the server answers that one first, and nobody wants to know what.
        """
        ...

    async def forget(self) -> None:
        """Connect afresh next time: the address may lead to another server by then."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class OneServer:
    """A single server, or the master that sentinels name.

    Commands take redis-py's connections directly: packed in C, and without the layers for what is not used here.
    Its pool looks at a socket each time; here only at one that has been idle, in which a server's end goes unnoticed.
    """

    def __init__(self, client: Any, sentinels: Sequence[Any] = ()) -> None:
        self.client = client
        self._sentinels = sentinels
        self._idle: list[tuple[Any, float]] = []
        """Connections at hand, the last used last, and when that was. To the pool they are in use."""

    async def call(self, *command: Any, after: Sequence[Any] | None = None) -> Any:
        packed = (
            pack_command(command) if after is None else pack_command(tuple(after)) + pack_command(command)
        )
        connection = await self._connection()
        try:
            await connection.send_packed_command(packed, check_health=False)
            if after is not None:
                await connection.read_response()
            try:
                answer = await connection.read_response()
            except ResponseError as error:  # an answer, too
                answer = error
        except BaseException:
            await connection.disconnect(nowait=True)  # what it still answers is nobody's
            await self.client.connection_pool.release(connection)
            raise
        self._idle.append((connection, time.monotonic()))
        if isinstance(answer, ResponseError):
            raise answer
        return answer

    async def _connection(self) -> Any:
        if self._idle:
            connection, used_at = self._idle.pop()
            if time.monotonic() - used_at < _TRUSTED:
                return connection
            self._idle.append((connection, used_at))
            await self._give_back()
        return await self.client.connection_pool.get_connection()

    async def _give_back(self) -> None:
        """The rest have been idle for longer."""
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await self.client.connection_pool.release(connection)

    async def forget(self) -> None:
        await self._give_back()
        await self.client.connection_pool.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        await self._give_back()
        await self.client.aclose()
        for sentinel in self._sentinels:
            await sentinel.aclose()


class Cluster:
    """The node that has the namespace's slot; redis-py follows it."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, *command: Any, after: Sequence[Any] | None = None) -> Any:
        """One after the other: redis-py takes a connection for each."""
        if after is not None:
            await self.client.execute_command(*after)
        return await self.client.execute_command(*command)

    async def forget(self) -> None:
        await self.client.aclose()

    async def aclose(self) -> None:
        await self.client.aclose()


def make_server(options: RedisOptions) -> Server:
    """The server of the options, not connected. Raises ConfigError for a URL that redis-py cannot read."""
    try:
        settings: dict[str, Any] = dict(parse_url(options.url))
    except ValueError as error:
        raise ConfigError(f"redis-py cannot read the Redis URL: {error}") from error
    if settings.pop("connection_class", None) is SSLConnection:
        settings = {"ssl": True, "ssl_check_hostname": True} | settings
    if "path" in settings:
        settings["unix_socket_path"] = settings.pop("path")
    settings = {"protocol": 2, "max_connections": _MAX_CONNECTIONS} | settings
    settings |= {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": options.timeout,
    }
    try:
        return _connectable(options, settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the Redis URL has a parameter that redis-py does not take: {error}") from error


def _connectable(options: RedisOptions, settings: dict[str, Any]) -> Server:
    if options.topology == "cluster":
        return Cluster(RedisCluster(**settings))
    if options.topology == "sentinel":
        own = {
            "socket_timeout": options.timeout,
            "socket_connect_timeout": options.timeout,
            "retry": Retry(NoBackoff(), 0),
        }
        sentinel = Sentinel(  # type: ignore[no-untyped-call]  # redis-py has no types there
            options.sentinels, sentinel_kwargs=own
        )
        return OneServer(sentinel.master_for(options.service, **settings), sentinel.sentinels)
    return OneServer(Redis(**settings))
