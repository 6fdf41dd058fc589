"""From a URL to its dialect; a client library is imported only for the dialect that needs it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from nimbusq.driver import DriverSettings
from nimbusq.errors import ConfigError, MissingExtra
from nimbusq_database.dialect import Dialect

_DIALECTS: Final = {
    "sqlite": "sqlite",
    "postgres": "postgres",
    "postgresql": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_CLASSES: Final = {"sqlite": "SqliteDialect", "postgres": "PostgresDialect", "mysql": "MysqlDialect"}


def dialect_class(name: str) -> Any:
    """The class of a dialect, by its name or one of its URL schemes. Raises ConfigError or MissingExtra."""
    dialect = _DIALECTS.get(name)
    if dialect is None:
        raise ConfigError(f"{name!r} is no database dialect: use one of {', '.join(sorted(_DIALECTS))}.")
    try:
        module = import_module(f"nimbusq_database.{dialect}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("nimbusq"):
            raise
        raise MissingExtra(
            f"the database driver on {name} needs {error.name}: pip install 'nimbusq[{dialect}]'."
        ) from error
    return getattr(module, _CLASSES[dialect])


def dialect_from_url(url: str, settings: DriverSettings) -> Dialect:
    """The dialect of a URL, not connected. Raises ConfigError or MissingExtra."""
    scheme = url.partition(":")[0].lower().partition("+")[0]
    from_url: Callable[[str, DriverSettings], Dialect] = dialect_class(scheme).from_url
    return from_url(url, settings)
