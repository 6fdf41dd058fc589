"""A PostgreSQL URL: asyncpg's, with a few options of the driver's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from nimbusq.errors import ConfigError

_OWN: Final = frozenset({"statement_cache_size", "pool_size", "listen"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """Where the server is and how to talk to it.

    dsn: for asyncpg. shown: without a password, for messages. pool_size: connections at most.
    statement_cache_size: 0 behind PgBouncer in transaction mode; every call is then one explicit transaction,
    and there is no LISTEN. listen: False polls only.
    """

    dsn: str
    shown: str
    pool_size: int = 10
    statement_cache_size: int = 200
    listen: bool = True

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Raises ConfigError for an option that makes no sense."""
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        own = {name: value for name, value in options if name in _OWN}
        rest = [(name, value) for name, value in options if name not in _OWN]
        try:
            pool_size = int(own.get("pool_size", "10"))
            cache = int(own.get("statement_cache_size", "200"))
            listen = {"on": True, "off": False}[own.get("listen", "on" if cache else "off")]
        except (ValueError, KeyError):
            raise ConfigError(
                "the database URL has a bad option: pool_size and statement_cache_size are numbers, "
                "listen is on or off."
            ) from None
        if pool_size < 1 or cache < 0:
            raise ConfigError("the database URL needs pool_size >= 1 and statement_cache_size >= 0.")
        return cls(
            dsn=urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest), "")),
            shown=f"PostgreSQL at {parts.netloc.rpartition('@')[2] or 'the default host'}{parts.path}",
            pool_size=pool_size,
            statement_cache_size=cache,
            listen=listen,
        )

    @property
    def pooled(self) -> bool:
        """Another pool stands between, so that no session state survives a transaction."""
        return self.statement_cache_size == 0
