"""A MySQL or MariaDB URL."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from nimbusq.errors import ConfigError

_OPTIONS: Final = frozenset({"unix_socket", "ssl_mode", "ssl_ca", "pool_size"})
_SSL_MODES: Final = ("disabled", "required", "verify-ca", "verify-full")


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlAddress:
    """Where the server is. shown: without a password, for messages. pool_size: connections at most."""

    options: dict[str, Any] = field(repr=False)
    shown: str
    pool_size: int = 10

    @classmethod
    def from_url(cls, url: str) -> Self:
        """``mysql://user:password@host:port/database``; options: unix_socket, ssl_mode, ssl_ca, pool_size.

        ssl_mode=required encrypts, verify-ca and verify-full also check who answers. Raises ConfigError.
        """
        parts = urlsplit(url)
        database = unquote(parts.path.removeprefix("/"))
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(given.keys() - _OPTIONS)
        if unknown or not database:
            wrong = f"has the unknown option {unknown[0]}" if unknown else "names no database"
            raise ConfigError(
                f"the database URL {wrong}: mysql://user:password@host:3306/database?pool_size=10"
            )
        pool_size = given.get("pool_size", "10")
        if not pool_size.isdecimal() or pool_size == "0":
            raise ConfigError(f"pool_size is the number of connections, not {pool_size!r}.")
        host = parts.hostname or "127.0.0.1"
        options: dict[str, Any] = {
            "host": host,
            "port": parts.port or 3306,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "db": database,
            "unix_socket": given.get("unix_socket"),
            "ssl": _ssl(given),
        }
        where = given.get("unix_socket") or f"{host}:{parts.port or 3306}"
        return cls(options=options, shown=f"MySQL at {where}/{database}", pool_size=int(pool_size))


def _ssl(given: dict[str, str]) -> ssl.SSLContext | None:
    mode = given.get("ssl_mode", "verify-full" if "ssl_ca" in given else "disabled")
    if mode not in _SSL_MODES:
        raise ConfigError(f"ssl_mode is one of {', '.join(_SSL_MODES)}, not {mode!r}.")
    if mode == "disabled":
        return None
    context = ssl.create_default_context(cafile=given.get("ssl_ca"))
    context.check_hostname = mode == "verify-full"
    if mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return context
