"""What the errors of MySQL's clients mean. aiomysql and asyncmy raise classes of the same names and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nimbusq.errors import NimbusqError, StoreError, StoreFull, StoreUnavailable

_AGAIN: Final = frozenset({1205, 1213, 1020})
"""Lock wait timeout, deadlock, record changed since last read: run the transaction again."""
_FULL: Final = frozenset({1021, 1037, 1038, 1041, 1114})
"""Disk full, out of memory (three kinds), table full."""
_PASSING: Final = frozenset(
    {1040, 1044, 1045, 1049, 1053, 1129, 1158, 1159, 1160, 1161, 1203, 1226, 1290, 1836}
)
"""Too many connections, logins, an unknown database, a shutdown, the network, a read-only server."""
_LIBRARIES: Final = frozenset({"aiomysql", "asyncmy", "pymysql"})


def is_mysql(error: BaseException) -> bool:
    """An error of one of the client libraries."""
    return type(error).__module__.partition(".")[0] in _LIBRARIES


def number(error: BaseException) -> int:
    """The server's or client's error number; 0 for other errors."""
    first = error.args[0] if error.args else 0
    return first if is_mysql(error) and isinstance(first, int) else 0


def was_undone(error: BaseException) -> bool:
    """The server has undone the transaction (or its last statement), which may simply be run again."""
    return number(error) in _AGAIN


def leaves_connection_sound(error: BaseException) -> bool:
    """The server has said no, or the work has of its own; the connection waits for the next statement."""
    return isinstance(error, NimbusqError) or 1000 <= number(error) < 2000


@contextmanager
def translated(server: str) -> Iterator[None]:
    """Raise the errors of `nimbusq.errors` for the client's, and for what passes a deadline."""
    try:
        yield
    except TimeoutError as error:
        raise StoreUnavailable(f"{server} has not answered in time.") from error
    except OSError as error:
        raise StoreUnavailable(f"{server} cannot be reached: {error}") from error
    except Exception as error:
        if not is_mysql(error):
            raise
        code = number(error)
        if code in _FULL:
            raise StoreFull(f"{server} has no space left: {error}") from error
        if code in _PASSING or code in _AGAIN or not 1000 <= code < 2000:
            raise StoreUnavailable(f"{server}: {error}") from error
        raise StoreError(f"{server}: {error}") from error
