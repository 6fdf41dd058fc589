"""Running the body of a transaction on a sqlite3 connection, from inside its thread."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Coroutine
from typing import TypeVar, cast

from nimbusq_database.client import Work
from nimbusq_database.sqlite.client import SqliteClient
from nimbusq_database.sqlite.failures import is_busy

T = TypeVar("T")


def transact(connection: sqlite3.Connection, work: Work[T], begin: str = "begin immediate") -> T:
    """Run the body between `begin` and a commit."""
    connection.execute(begin)
    try:
        answer: T = apply(connection, work)
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return answer


def apply(connection: sqlite3.Connection, work: Work[T]) -> T:
    """Run the body, a coroutine that never suspends, as it is: each of its statements commits by itself."""
    coroutine = cast("Coroutine[None, None, T]", work(SqliteClient(connection)))
    try:
        coroutine.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    coroutine.close()
    raise RuntimeError("a transaction's body may await nothing but its statements")


def patiently(run: Callable[[], T], until: float) -> T:
    """Run again while another connection holds the file, until a time of the monotonic clock."""
    while True:
        try:
            return run()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
            time.sleep(random.uniform(0.0002, 0.003))  # noqa: S311  # spreads processes, guards nothing


def use_wal(connection: sqlite3.Connection) -> None:
    """Writers then do not wait for readers. The file remembers it; to switch takes it alone for a moment."""
    until = time.monotonic() + 10.0
    while True:
        try:
            if connection.execute("pragma journal_mode = wal").fetchone()[0] == "wal":
                return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
        time.sleep(random.uniform(0.001, 0.02))  # noqa: S311  # likewise
