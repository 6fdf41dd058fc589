"""What sqlite3's errors mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nimbusq.errors import StoreError, StoreFull, StoreUnavailable

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
"""What somebody may put right while the program runs."""


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Another connection holds the file; the same again may succeed in a moment."""
    return _primary(error) in _BUSY


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise the errors of `nimbusq.errors` for sqlite3's."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if _primary(error) == sqlite3.SQLITE_FULL:
            raise StoreFull(f"no space is left for {path}: nothing was stored.") from error
        if _primary(error) in _BUSY:
            raise StoreUnavailable(f"{path} was held by another process for too long.") from error
        if _primary(error) in _PASSING:
            raise StoreUnavailable(f"{path}: {error}") from error
        raise StoreError(f"{path}: {error}") from error


def _primary(error: sqlite3.Error) -> int:
    """The error code without its extension."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
