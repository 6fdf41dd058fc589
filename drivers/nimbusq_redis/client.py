"""The client behind each topology: no retries of its own, no time limits of its own.

redis-py re-sends a command whose reply was lost, up to ten times by default, and waits minutes on a frozen server;
here every call has one deadline (see link.py), and whoever calls decides what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from nimbusq.errors import ConfigError
from nimbusq_redis.exchange import Exchange
from nimbusq_redis.options import RedisOptions

_MAX_CONNECTIONS: Final = 512


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

    redis-py makes the connections, commands take them over (see exchange.py): packed in C, and without the layers for
    what is not used here.
    """

    def __init__(self, client: Any, sentinels: Sequence[Any] = ()) -> None:
        self.client = client
        self._sentinels = sentinels
        self._idle: list[Exchange] = []
        """Connections at hand, the last used last. To the pool they are in use."""
        self._at_hand = client.connection_pool.max_connections // 2
        """How many of them; the pool keeps as many for whoever uses the client itself."""

    async def call(self, *command: Any, after: Sequence[Any] | None = None) -> Any:
        packed, count = pack_command(command), 1
        if after is not None:
            packed, count = pack_command(tuple(after)) + packed, 2
        idle = self._idle
        exchange = await self._exchange()
        try:
            replies = await exchange.ask(packed, count)
        except BaseException:
            await self._close(exchange)  # what it still answers is nobody's
            raise
        if idle is self._idle and len(idle) < self._at_hand:
            idle.append(exchange)
        else:
            await self._close(exchange)
        for reply in replies:
            if isinstance(reply, RedisError):
                raise reply
        return replies[-1]

    async def _exchange(self) -> Exchange:
        while self._idle:
            exchange = self._idle.pop()
            if not exchange.lost:
                return exchange
            await self._close(exchange)
        return Exchange(await self.client.connection_pool.get_connection())

    async def _close(self, exchange: Exchange, *, nowait: bool = True) -> None:
        await exchange.connection.disconnect(nowait=nowait)
        await self.client.connection_pool.release(exchange.connection)

    async def forget(self) -> None:
        await self._forget(nowait=True)
        await self.client.connection_pool.disconnect(inuse_connections=False)

    async def _forget(self, *, nowait: bool) -> None:
        """Connections in use are closed when they have been answered, since they were not of the list that begins."""
        idle, self._idle = self._idle, []
        for exchange in idle:
            await self._close(exchange, nowait=nowait)

    async def aclose(self) -> None:
        await self._forget(nowait=False)
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
    settings = {"max_connections": _MAX_CONNECTIONS} | settings
    settings |= {
        "protocol": 2,  # the other one has messages that nobody has asked for
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
