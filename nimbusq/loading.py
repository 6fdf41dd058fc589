"""Drivers by name or URL, found through the entry-point group ``nimbusq.drivers``."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from nimbusq.driver import Adapter, DriverSettings
from nimbusq.errors import ConfigError, MissingExtra, UnknownDriver

GROUP = "nimbusq.drivers"

_EXTRAS = {
    "redis": "redis",
    "asyncpg": "postgres",
    "aiomysql": "mysql",
    "aioboto3": "sqs",
    "aiokafka": "kafka",
}


def driver_names() -> tuple[str, ...]:
    """Every name and URL scheme under which a driver is registered."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def load_adapter(url: str, settings: DriverSettings) -> Adapter:
    """The adapter for a URL or a bare driver name. Raises UnknownDriver, MissingExtra or ConfigError."""
    adapter: Adapter = driver_class(url).from_url(url, settings)
    return adapter


def driver_class(url: str) -> Any:
    """The class behind a URL, a scheme or a bare name. Raises UnknownDriver or MissingExtra."""
    scheme = url.partition(":")[0].lower().partition("+")[0]
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if scheme not in found:
        raise UnknownDriver(
            f"no driver is called {redacted(scheme)!r}. Use one of: {', '.join(sorted(found)) or 'none installed'}."
        )
    return _load(found[scheme])


def _load(entry: EntryPoint) -> type[Adapter]:
    try:
        loaded: type[Adapter] = entry.load()
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise ConfigError(
                f"the driver {entry.name!r} ({entry.value}) cannot be imported: {error}"
            ) from error
        raise MissingExtra(
            f"the {entry.name} driver needs {error.name}: pip install 'nimbusq[{extra}]'."
        ) from error
    return loaded


def cleartext_host(url: str) -> str | None:
    """The host that this URL reaches unencrypted over a network, or None (loopback, a socket, a file, TLS)."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in _CLEARTEXT or "ssl" in parts.query or "tls" in parts.query:
        return None
    hosts = [host.rpartition("@")[2] for host in parts.netloc.split(",")]
    return next((host for host in hosts if host and not _is_loopback(host)), None)


_CLEARTEXT: Final = frozenset(
    {"redis", "valkey", "postgresql", "postgres", "mysql", "mariadb", "kafka", "http"}
)


def _is_loopback(netloc: str) -> bool:
    host = urlsplit(f"//{netloc}").hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_SECRET = re.compile(r"(?<=://)([^/@\s]*?):([^/\s]*)@")


def redacted(url: str) -> str:
    """The URL without its password, for messages and logs."""
    return _SECRET.sub(r"\1:***@", url)
