"""What asyncpg's errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from nimbusq.errors import NimbusqError, StoreError, StoreFull, StoreUnavailable
from nimbusq_database.failures import AlreadyThere

_AGAIN: Final = frozenset({"40P01", "40001"})
"""Deadlock, serialization failure: nothing was done, the same again may succeed."""
_FULL: Final = frozenset({"53100", "53200"})
"""Disk full, out of memory."""
_KNOWN_KEY: Final = "23505"
_PASSING: Final = ("08", "53", "57", "25006", "28", "3D", "55P03")
"""Connections, resources, an operator's doing, a standby, logins, a database that is not there yet, a lock."""


def was_undone(error: BaseException) -> bool:
    """The server has undone the transaction, which may simply be run again."""
    return getattr(error, "sqlstate", None) in _AGAIN


def leaves_connection_sound(error: BaseException) -> bool:
    """The server has said no, or the work has of its own; the connection waits for the next statement."""
    if isinstance(error, asyncpg.PostgresError):
        return not isinstance(error, asyncpg.PostgresConnectionError)
    return isinstance(error, NimbusqError)


@contextmanager
def translated(server: str) -> Iterator[None]:
    """Raise the errors of `nimbusq.errors` for asyncpg's, and for what passes a deadline."""
    try:
        yield
    except TimeoutError as error:
        raise StoreUnavailable(f"{server} has not answered in time.") from error
    except asyncpg.PostgresError as error:
        state = str(error.sqlstate or "")
        if state in _FULL:
            raise StoreFull(f"{server} has no space left: {error}") from error
        if isinstance(error, asyncpg.PostgresConnectionError) or state.startswith(_PASSING):
            raise StoreUnavailable(f"{server}: {error}") from error
        if state == _KNOWN_KEY:
            raise AlreadyThere(f"{server}: {error}") from error
        raise StoreError(f"{server}: {error}") from error
    # asyncpg's internal error: the server has ended the session unasked (a sibling crashed), and that was not read.
    except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise StoreUnavailable(f"{server} cannot be reached: {error}") from error
