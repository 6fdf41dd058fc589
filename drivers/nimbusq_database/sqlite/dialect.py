"""SQLite: WAL, one connection to write and one to read, each in a thread of its own.

A third one, on the event loop, looks at whether any other connection has committed, and does the briefest writes.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Self, TypeVar

from nimbusq.driver import DriverSettings, Finding
from nimbusq.errors import ConfigError, StoreUnavailable
from nimbusq_database.client import Work
from nimbusq_database.sqlite.failures import is_busy, translated
from nimbusq_database.sqlite.file import SqliteFile
from nimbusq_database.sqlite.loop_connection import LoopConnection
from nimbusq_database.sqlite.running import apply, patiently, transact, use_wal
from nimbusq_database.sqlite.thread import ConnectionThread
from nimbusq_database.statements import Spelling
from nimbusq_database.transaction import Transaction

T = TypeVar("T")

_POLL: Final = 0.05
"""Seconds between two looks at whether another process has written (one counter in shared memory)."""
_OLDEST: Final = (3, 35, 0)


class SqliteDialect:
    """`nimbusq_database.dialect.Dialect` for one file. Several processes may use it at the same time."""

    name = "sqlite"
    creates = True
    single = False
    hopeful = False
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
        self._near: LoopConnection | None = None
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
            await self._writer.run(use_wal)
            self._near = LoopConnection(self._file)

    async def aclose(self) -> None:
        threads, self._writer, self._reader = (self._reader, self._writer), None, None
        if self._near:
            self._near.close()
            self._near = None
        for thread in threads:
            if thread:
                await thread.close()

    async def transact(self, work: Work[T], *, limit: float) -> T:
        return await self._run(self._writer, partial(transact, work=work), limit)

    async def run(self, work: Work[T], *, limit: float, brief: bool = False) -> T:
        """A brief one takes place here, unless the file is held or it is the thread's turn."""
        if brief:
            await asyncio.sleep(0)  # who sends and sends still lets the loop's other tasks have their turn
            if self._near and self._near.take_turn():
                with translated(self._file.path):
                    try:
                        return self._near.write(work)
                    except sqlite3.OperationalError as error:
                        if not is_busy(error):
                            raise
        return await self._run(self._writer, partial(apply, work=work), limit)

    async def read(self, work: Work[T], *, limit: float) -> T:
        return await self._run(self._reader, partial(transact, work=work, begin="begin"), limit)

    async def exclusively(self, work: Work[T]) -> T:
        return await self._run(self._writer, partial(transact, work=work), 60.0)

    async def change(self, rung: asyncio.Event, seconds: float) -> None:
        """A counter tells that any other connection has committed, from this process or another."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (remaining := until - loop.time()) > 0:
            if await _is_set(rung, min(_POLL, remaining)):
                return
            before, self._version = self._version, self._committed()
            if before != self._version:
                return

    def _committed(self) -> int:
        """See `LoopConnection.version`."""
        if self._near is None:
            raise StoreUnavailable(f"{self._file.path} is not open")
        with translated(self._file.path):
            return self._near.version()

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

    async def _run(
        self, thread: ConnectionThread | None, run: Callable[[sqlite3.Connection], T], limit: float
    ) -> T:
        if thread is None:
            raise StoreUnavailable(f"{self._file.path} is not open")
        until = time.monotonic() + limit
        with translated(self._file.path):
            return await thread.run(lambda connection: patiently(partial(run, connection), until))


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
