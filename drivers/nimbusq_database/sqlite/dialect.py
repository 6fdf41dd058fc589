"""SQLite: WAL, one connection to write and one to read, each in a thread of its own.

A third one, on the event loop, only looks at whether any other connection has committed.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import parse_qs, unquote, urlsplit

from nimbusq.driver import DriverSettings, Finding
from nimbusq.errors import ConfigError, StoreUnavailable
from nimbusq_database.client import Work
from nimbusq_database.sqlite.client import SqliteClient
from nimbusq_database.sqlite.failures import is_busy, translated
from nimbusq_database.sqlite.thread import ConnectionThread
from nimbusq_database.statements import Spelling
from nimbusq_database.transaction import Transaction

T = TypeVar("T")

_POLL: Final = 0.05
"""Seconds between two looks at whether another process has written (one counter in shared memory)."""
_CHECKPOINT: Final = 4_000
"""Pages in the journal before they are copied to the file: a page that changed often is then copied once."""
_OLDEST: Final = (3, 35, 0)
_SYNCHRONOUS: Final = ("off", "normal", "full", "extra")


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """Where the database is and how sure its commits are.

    synchronous: "normal" survives every end of a process, a power cut may take the last commits; "full" waits
    for the disk at each commit.
    """

    path: str
    synchronous: str = "normal"

    @classmethod
    def from_url(cls, url: str) -> SqliteFile:
        """``sqlite:///relative.db`` or ``sqlite:////absolute.db?synchronous=full``. Raises ConfigError."""
        parts = urlsplit(url)
        path = unquote(parts.path).removeprefix("/")
        if parts.netloc or not path or path.startswith(":memory:"):
            raise ConfigError(
                f"{url!r} names no file: write sqlite:///relative.db or sqlite:////absolute/path.db. "
                "For jobs in memory there is the driver memory://."
            )
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        synchronous = options.pop("synchronous", "normal").lower()
        if options or synchronous not in _SYNCHRONOUS:
            raise ConfigError(
                f"{url!r} has an unknown option: there is ?synchronous={'|'.join(_SYNCHRONOUS)}."
            )
        return cls(path, synchronous)

    def connect(self) -> sqlite3.Connection:
        """A connection for one thread. `_transact` waits for a busy file, more finely than SQLite does."""
        connection = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, cached_statements=512)
        connection.row_factory = sqlite3.Row
        connection.execute(f"pragma synchronous = {self.synchronous}")
        connection.execute(f"pragma wal_autocheckpoint = {_CHECKPOINT}")
        connection.execute("pragma busy_timeout = 0")
        return connection


class SqliteDialect:
    """`nimbusq_database.dialect.Dialect` for one file. Several processes may use it at the same time."""

    name = "sqlite"
    creates = True
    single = False
    spelling = Spelling(
        style="qmark",
        now=":now",
        clock="((julianday('now') - 2440587.5) * 86400.0)",
        contains=lambda name: f"in (select value from json_each(:{name}))",  # noqa: S608  # a name in a file
        greatest="max",
        least="min",
        for_update="",
        skip_locked="",
    )

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._writer: ConnectionThread | None = None
        self._reader: ConnectionThread | None = None
        self.heard: Callable[[Collection[str]], None] = lambda _topics: None
        self._watcher: sqlite3.Connection | None = None
        self._version: int | None = None

    @classmethod
    def from_url(cls, url: str, _settings: DriverSettings) -> Self:
        """See `SqliteFile.from_url`."""
        return cls(SqliteFile.from_url(url))

    def clone(self) -> Self:
        return type(self)(self._file)

    async def open(self) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise ConfigError(
                f"this Python brings SQLite {sqlite3.sqlite_version}: "
                f"nimbusq needs {'.'.join(map(str, _OLDEST))} or later."
            )
        self._writer = ConnectionThread("nimbusq-sqlite-writer", self._file.connect)
        self._reader = ConnectionThread("nimbusq-sqlite-reader", self._file.connect)
        with translated(self._file.path):
            await self._writer.run(_use_wal)
            self._watcher = self._file.connect()

    async def aclose(self) -> None:
        threads, self._writer, self._reader = (self._reader, self._writer), None, None
        if self._watcher:
            self._watcher.close()
            self._watcher = None
        for thread in threads:
            if thread:
                await thread.close()

    async def transact(self, work: Work[T], *, limit: float) -> T:
        return await self._run(self._writer, work, "begin immediate", limit)

    async def run(self, work: Work[T], *, limit: float) -> T:
        return await self._run(self._writer, work, "begin immediate", limit)

    async def read(self, work: Work[T], *, limit: float) -> T:
        return await self._run(self._reader, work, "begin", limit)

    async def exclusively(self, work: Work[T]) -> T:
        return await self._run(self._writer, work, "begin immediate", 60.0)

    async def change(self, rung: asyncio.Event, seconds: float) -> None:
        """A counter tells that any other connection has committed, from this process or another."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (remaining := until - loop.time()) > 0:
            if await _is_set(rung, min(_POLL, remaining)):
                return
            before, self._version = self._version, self._data_version()
            if before != self._version:
                return

    def _data_version(self) -> int:
        """A look into shared memory, which takes no lock and less time than a hop to a thread."""
        if self._watcher is None:
            raise StoreUnavailable(f"{self._file.path} is not open")
        with translated(self._file.path):
            version: int = self._watcher.execute("pragma data_version").fetchone()[0]
            return version

    def carried(self, queue: str) -> str | None:  # noqa: ARG002  # the protocol's
        """Nothing: see `announce`."""
        return None

    def announce(self, topics: Collection[str]) -> None:
        """Other processes see the counter move."""

    async def announce_within(self, tx: Transaction) -> None:
        """Likewise."""

    async def hindrance(self) -> str | None:
        """Nothing: there is no other writer's snapshot to keep rows for."""
        return None

    async def findings(self) -> Sequence[Finding]:
        found = [Finding("ok", f"SQLite {sqlite3.sqlite_version}, {self._file.path}")]
        if self._file.synchronous == "off":
            found.append(Finding("error", "synchronous=off: a power cut may destroy the file"))
        elif self._file.synchronous == "normal":
            found.append(
                Finding(
                    "ok", "synchronous=normal: a power cut may take the last commits; ?synchronous=full waits"
                )
            )
        return found

    async def _run(self, thread: ConnectionThread | None, work: Work[T], begin: str, limit: float) -> T:
        if thread is None:
            raise StoreUnavailable(f"{self._file.path} is not open")
        until = time.monotonic() + limit
        with translated(self._file.path):
            return await thread.run(lambda connection: _transact(connection, work, begin, until))


def _transact(connection: sqlite3.Connection, work: Work[T], begin: str, until: float) -> T:
    """Run the body between begin and commit, again while another process holds the file."""
    while True:
        try:
            connection.execute(begin)
            try:
                answer: T = _to_its_end(work(SqliteClient(connection)))
                connection.execute("commit")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("rollback")
                raise
            return answer
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
            time.sleep(random.uniform(0.0002, 0.003))  # noqa: S311  # spreads processes, guards nothing


def _to_its_end(body: Any) -> Any:
    """Run a coroutine that never suspends."""
    coroutine = cast("Coroutine[None, None, Any]", body)
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a transaction's body may await nothing but its statements")


def _use_wal(connection: sqlite3.Connection) -> None:
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


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
