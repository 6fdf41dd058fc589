"""The redis-py client behind each topology: no retries of its own, no time limits of its own.

redis-py re-sends a command whose reply was lost, up to ten times by default, and waits minutes on a frozen server;
here every call has one deadline, and whoever calls decides what to do next.
"""

from __future__ import annotations

from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from nimbusq.errors import ConfigError
from nimbusq_redis.options import RedisOptions

_MAX_CONNECTIONS: Final = 512


def make_client(options: RedisOptions) -> Any:
    """A client for the options, not connected. Raises ConfigError for a URL that redis-py cannot read."""
    try:
        settings: dict[str, Any] = dict(parse_url(options.url))
    except ValueError as error:
        raise ConfigError(f"redis-py cannot read the Redis URL: {error}") from error
    verified = settings.pop("connection_class", None) is SSLConnection
    if verified:
        settings = {"ssl": True, "ssl_check_hostname": True} | settings
    settings = {"protocol": 2} | settings
    settings |= {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": options.timeout,
        "max_connections": _MAX_CONNECTIONS,
    }
    if "path" in settings:
        settings["unix_socket_path"] = settings.pop("path")
    try:
        return _topology(options, settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the Redis URL has a parameter that redis-py does not take: {error}") from error


def _topology(options: RedisOptions, settings: dict[str, Any]) -> Any:
    if options.topology == "cluster":
        return RedisCluster(**settings)
    if options.topology == "sentinel":
        own = {"socket_timeout": options.timeout, "socket_connect_timeout": options.timeout}
        sentinel = Sentinel(  # type: ignore[no-untyped-call]  # redis-py has no types there
            options.sentinels, sentinel_kwargs=own | {"retry": Retry(NoBackoff(), 0)}
        )
        return sentinel.master_for(options.service, **settings)
    return Redis(**settings)
