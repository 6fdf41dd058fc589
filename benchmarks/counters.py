"""What a server was asked, counted by itself: commands of Redis, statements of PostgreSQL and of SQLite."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final, Protocol
from unittest import mock

from benchmarks.peer import Place


class Asked(Protocol):
    """Counts what is asked of one place."""

    def reset(self) -> None:
        """Count from now on."""

    def calls(self) -> Counter[str]:
        """How often each command or statement was sent since `reset`; nothing that a script or trigger ran."""

    def watching(self) -> AbstractContextManager[None]:
        """Connections that are to be counted are opened inside of it."""

    def left(self) -> list[str]:
        """What is stored, and would stay for ever: Redis keys without a time to live, tables with rows in them."""


KEPT: Final = ("meta", "migrations", "workers", "totals")
"""Ends of the names of keys and tables that stay whatever becomes of the jobs: versions, live workers, sums."""
CLIENTS_OWN: Final = ("typeinfo_tree", "current_setting", "set_config", "pg_notify")
"""What each new connection is asked, by asyncpg and for its settings; and the hint that follows pushes at most every
20 ms."""

CHANGES: Final = ("insert", "update", "delete", "replace")
"""SQLite's statements that are a transaction of their own outside of one."""


class RedisAsked:
    """By MONITOR, which tells a client's commands from those that a script runs."""

    def __init__(self, place: Place) -> None:
        import redis

        self._redis = redis.Redis.from_url(place.url, socket_timeout=None)
        self._calls: Counter[str] = Counter()
        self._heard = threading.Semaphore(0)

    @contextmanager
    def watching(self) -> Iterator[None]:
        listener = threading.Thread(target=self._listen)
        listener.start()
        self._heard.acquire()
        try:
            yield
        finally:
            self._redis.echo("stop")
            listener.join()

    def _listen(self) -> None:
        monitor: Any = self._redis.monitor()  # type: ignore[no-untyped-call]  # redis-py has no types there
        with monitor:
            self._heard.release()
            for command in monitor.listen():
                name, _, argument = command["command"].partition(" ")
                if name.upper() == "ECHO":
                    self._heard.release()
                    if argument == "stop":
                        return
                elif command["client_type"] != "lua":
                    self._calls[name.upper()] += 1

    def reset(self) -> None:
        self._catch_up()
        self._calls.clear()

    def calls(self) -> Counter[str]:
        self._catch_up()
        return Counter(self._calls)

    def _catch_up(self) -> None:
        """Wait until the listener has heard all that was sent so far."""
        self._redis.echo("here")
        self._heard.acquire()

    def left(self) -> list[str]:
        keys = [key.decode() for key in self._redis.scan_iter() if self._redis.ttl(key) < 0]
        return [key for key in keys if not key.endswith(KEPT)]

    def memory(self) -> int:
        """Bytes that the data takes, without those of connections."""
        return int(self._redis.info("memory")["used_memory_dataset"])


class PostgresAsked:
    """By pg_stat_statements, looked at from another database so as not to count itself."""

    def __init__(self, place: Place) -> None:
        import psycopg

        self._database = place.name
        self._within = place.url
        self._connection = psycopg.connect(place.url.replace(f"/{place.name}", "/nimbusq"), autocommit=True)
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def reset(self) -> None:
        self._connection.execute("SELECT pg_stat_statements_reset()")

    def calls(self) -> Counter[str]:
        rows = self._connection.execute(
            "SELECT query, sum(calls)::int FROM pg_stat_statements JOIN pg_database ON oid = dbid"
            " WHERE datname = %s AND toplevel GROUP BY query",
            [self._database],
        )
        calls = Counter({" ".join(query.split())[:70]: calls for query, calls in rows})
        return Counter(
            {query: n for query, n in calls.items() if not any(each in query for each in CLIENTS_OWN)}
        )

    def watching(self) -> AbstractContextManager[None]:
        return nullcontext()

    def left(self) -> list[str]:
        import psycopg

        with psycopg.connect(self._within) as connection:
            tables = [
                row[0]
                for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            ]
            counts = {
                table: connection.execute(f'SELECT count(*) FROM "{table}"'.encode()).fetchone()
                for table in tables
            }
        return _with_rows({table: row[0] for table, row in counts.items() if row})


class SqliteAsked:
    """By a trace on every connection that this process opens. A transaction is the round trip: its commit counts, and
    so does a change that commits by itself."""

    def __init__(self, place: Place) -> None:
        self._path = place.file
        self._calls: Counter[str] = Counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        connect = sqlite3.connect

        def traced(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **options)
            connection.set_trace_callback(partial(self._note, connection))
            return connection

        with mock.patch("sqlite3.connect", traced):
            yield

    def _note(self, connection: sqlite3.Connection, statement: str) -> None:
        word = statement.split(maxsplit=1)[0].lower()
        if word == "commit" or (word in CHANGES and not connection.in_transaction):
            self._calls["commit"] += 1

    def reset(self) -> None:
        self._calls.clear()

    def calls(self) -> Counter[str]:
        return Counter(self._calls)

    def left(self) -> list[str]:
        with sqlite3.connect(self._path) as connection:
            tables = [
                row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            counts = {
                table: connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in tables
            }
        return _with_rows(counts)


def _with_rows(counts: dict[str, int]) -> list[str]:
    return [
        f"{table}: {rows} rows" for table, rows in counts.items() if rows and not table.endswith(tuple(KEPT))
    ]
