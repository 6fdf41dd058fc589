"""Drivers by name or URL, found through the entry-point group ``nimbusq.drivers``."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points
from typing import Any

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


_SECRET = re.compile(r"(?<=://)([^/@\s]*?):([^/\s]*)@")


def redacted(url: str) -> str:
    """The URL without its password, for messages and logs."""
    return _SECRET.sub(r"\1:***@", url)
