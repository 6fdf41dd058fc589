"""Brief pushes on SQLite take place on the event loop's thread, and only those."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nimbusq.driver import DriverSettings
from nimbusq.envelope import ChainRest, Envelope, Unique
from nimbusq.errors import StoreFull
from nimbusq.ids import new_id
from nimbusq_database import DatabaseAdapter
from nimbusq_database.sqlite.client import SqliteClient
from nimbusq_database.sqlite.dialect import SqliteDialect
from nimbusq_database.sqlite.file import SqliteFile
from nimbusq_database.sqlite.loop_connection import LoopConnection
from nimbusq_database.statements import Part


def envelope(**options: Any) -> Envelope:
    return Envelope(id=new_id(), name="Send", queue="mail", **options)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[DatabaseAdapter]:
    adapter = DatabaseAdapter.from_url(url, DriverSettings())
    await adapter.open()
    try:
        await adapter.push([envelope(), envelope()])
        await adapter.push([envelope()])  # a round begins with two of the thread's
        yield adapter
    finally:
        await adapter.aclose()


@pytest.fixture
async def adapter(tmp_path: Path) -> AsyncIterator[DatabaseAdapter]:
    async with opened(f"sqlite:///{tmp_path}/jobs.db") as adapter:
        yield adapter


@asynccontextmanager
async def busy_writer(adapter: DatabaseAdapter) -> AsyncIterator[None]:
    """The writer's thread is busy, and does not hold the file."""
    gate = threading.Event()
    writer = dialect(adapter)._writer
    assert writer is not None
    waiting = asyncio.create_task(writer.run(lambda _: gate.wait(10)))
    try:
        yield
    finally:
        gate.set()
        await waiting


def dialect(adapter: DatabaseAdapter) -> SqliteDialect:
    found = adapter._database.dialect
    assert isinstance(found, SqliteDialect)
    return found


async def is_brief(adapter: DatabaseAdapter, envelopes: list[Envelope]) -> bool:
    """Whether it is pushed while the writer's thread is busy."""
    async with busy_writer(adapter):
        pushing = asyncio.create_task(adapter.push(envelopes))
        for _ in range(5):
            await asyncio.sleep(0)
        brief = pushing.done()
    assert [one.id for one in await pushing] == [one.id for one in envelopes]
    return brief


async def pending(adapter: DatabaseAdapter) -> int:
    (depth,) = await adapter.depth(["mail"])
    return depth.pending


async def test_a_few_small_jobs_are_brief(adapter: DatabaseAdapter) -> None:
    assert await is_brief(adapter, [envelope()])
    assert await is_brief(adapter, [envelope(body=b"x" * 2000) for _ in range(8)])
    assert await is_brief(adapter, [envelope(), envelope(priority=1), envelope(unique=Unique(key="k"))])
    assert await pending(adapter) == 3 + 1 + 8 + 3


@pytest.mark.parametrize(
    "envelopes",
    [
        [envelope() for _ in range(9)],
        [envelope(body=b"x" * 10_000), envelope(body=b"x" * 10_000)],
        [envelope(chain=ChainRest(id="c", rest=("x" * 10_000,)))],
        [envelope(unique=Unique(key="k", mode="lock"))],
    ],
    ids=["many", "large", "chain", "lock"],
)
async def test_what_may_be_long_is_not(adapter: DatabaseAdapter, envelopes: list[Envelope]) -> None:
    assert not await is_brief(adapter, envelopes)
    assert await pending(adapter) == 3 + len(envelopes)


async def test_no_commit_is_brief_that_waits_for_the_disk(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/jobs.db?synchronous=full") as adapter:
        assert not await is_brief(adapter, [envelope()])


async def test_a_held_slot_is_told_and_a_repeated_push_does_nothing(adapter: DatabaseAdapter) -> None:
    first = envelope(unique=Unique(key="k"))
    assert [one.holder for one in await adapter.push([first])] == [None]
    assert [one.holder for one in await adapter.push([envelope(unique=Unique(key="k"))])] == [first.id]
    assert [one.holder for one in await adapter.push([first])] == [None]
    assert await pending(adapter) == 3 + 1


@pytest.mark.parametrize("unique", [None, Unique(key="k")], ids=["one statement", "a transaction"])
async def test_a_file_that_others_hold_is_left_to_the_thread(
    adapter: DatabaseAdapter, tmp_path: Path, unique: Unique | None
) -> None:
    holder = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    holder.execute("begin immediate")
    sent = envelope(unique=unique)
    pushing = asyncio.create_task(adapter.push([sent]))
    await asyncio.sleep(0.02)
    assert not pushing.done()
    holder.execute("rollback")
    holder.close()
    assert [one.id for one in await pushing] == [sent.id]
    assert await pending(adapter) == 3 + 1


class Interrupted(sqlite3.Connection):
    """Ctrl-C comes as soon as a transaction has begun."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        cursor = super().execute(sql, parameters)
        if sql.startswith("begin"):
            raise KeyboardInterrupt
        return cursor


def test_an_interrupt_leaves_no_transaction_open() -> None:
    """Nobody else could write then: the connection is open for as long as the adapter."""
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=Interrupted)
    connection.execute("create table t (a)")
    part = Part("insert into t values (?)", ("a",))
    with pytest.raises(KeyboardInterrupt):
        SqliteClient(connection).insert([part], [{"a": 1}], {}).send(None)
    assert not connection.in_transaction
    connection.close()


async def test_the_loops_other_tasks_have_their_turns(adapter: DatabaseAdapter) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    for _ in range(50):
        await adapter.push([envelope()])
    beside.cancel()
    assert turns >= 50


async def test_what_others_commit_is_seen_behind_a_brief_push_of_ones_own(
    adapter: DatabaseAdapter, tmp_path: Path
) -> None:
    """Both are on one connection, whose own commits do not count."""
    near = dialect(adapter)._near
    assert near is not None
    first = near.version()
    await adapter.push([envelope()])
    assert near.version() == first
    async with opened(f"sqlite:///{tmp_path}/jobs.db"):
        await adapter.push([envelope()])
    assert near.version() != first


async def test_one_cancelled_before_its_turn_stores_nothing(adapter: DatabaseAdapter) -> None:
    pushing = asyncio.create_task(adapter.push([envelope()]))
    await asyncio.sleep(0)
    pushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pushing
    assert await pending(adapter) == 3


async def test_a_full_disk_is_told(adapter: DatabaseAdapter) -> None:
    near = dialect(adapter)._near
    assert near is not None
    (pages,) = near._connection.execute("pragma page_count").fetchone()
    near._connection.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(StoreFull, match="no space is left"):
        await adapter.push([envelope(body=b"x" * 16_000)])
    assert await pending(adapter) == 3


def test_the_thread_takes_two_in_a_row_of_each_round(tmp_path: Path) -> None:
    near = LoopConnection(SqliteFile(str(tmp_path / "x.db")))
    turns = "".join("x" if near.take_turn() else "-" for _ in range(256 + 1))
    near.close()
    assert turns == "--" + "x" * 126 + "--" + "x" * 126 + "-"


async def test_the_journal_is_copied_to_the_file_in_the_threads_turns(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/jobs.db") as adapter:
        for _ in range(2500):
            await adapter.push([envelope(body=b"x" * 16_000)])
        assert await pending(adapter) == 3 + 2500
        assert (tmp_path / "jobs.db-wal").stat().st_size < 7_000 * 4_120
