"""Ordered migrations, on SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nimbusq.driver import DriverSettings
from nimbusq.errors import ConfigError, SchemaMismatch
from nimbusq_database import DatabaseAdapter
from nimbusq_database.migrations import Applied, load, sql


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], DatabaseAdapter]:
    return lambda: DatabaseAdapter.from_url(
        f"sqlite:///{tmp_path / 'jobs.db'}", DriverSettings(prefix="shop")
    )


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection, connection:
        found = {
            name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
        }
    connection.close()
    return found


async def test_a_new_file_gets_its_tables_when_it_is_opened(
    make: Callable[[], DatabaseAdapter], tmp_path: Path
) -> None:
    adapter = make()
    await adapter.open()
    states = [(line.version, line.state) for line in await adapter.migrations.status()]
    await adapter.migrations.check()
    assert await adapter.migrations.plan() == []
    await adapter.aclose()
    assert states == [(migration.version, "applied") for migration in load("sqlite")]
    assert {"shop_jobs", "shop_migrations"} <= tables(tmp_path / "jobs.db")


async def test_many_may_apply_them_at_once(make: Callable[[], DatabaseAdapter]) -> None:
    async def up() -> list[Applied]:
        async with make().migrations.connected() as migrations:
            return await migrations.up()

    applied = await asyncio.gather(*(up() for _ in range(12)))
    assert sum(map(len, applied)) == len(load("sqlite"))


async def test_down_removes_what_up_has_made(make: Callable[[], DatabaseAdapter], tmp_path: Path) -> None:
    await make().setup([])
    async with make().migrations.connected() as migrations:
        planned = await migrations.plan(0)
        assert await migrations.down(0) == planned
        assert [line.state for line in await migrations.status()] == ["pending"] * len(planned)
    assert tables(tmp_path / "jobs.db") == {"shop_migrations"}


async def test_a_schema_that_is_too_old_is_refused(
    make: Callable[[], DatabaseAdapter], tmp_path: Path
) -> None:
    await make().setup([])
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute("update shop_migrations set version = 0")
    connection.close()
    with pytest.raises(SchemaMismatch, match="nimbusq migrate up"):
        await make().open()


async def test_a_newer_schema_serves_but_is_not_undone(
    make: Callable[[], DatabaseAdapter], tmp_path: Path
) -> None:
    await make().setup([])
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute("insert into shop_migrations values (99, 'later', '', 0)")
    connection.close()
    adapter = make()
    await adapter.open()
    assert (await adapter.migrations.status())[-1].state == "unknown"
    with pytest.raises(ConfigError, match="newer nimbusq"):
        await adapter.migrations.down(0)
    await adapter.aclose()


async def test_a_migration_that_was_edited_is_found(
    make: Callable[[], DatabaseAdapter], tmp_path: Path
) -> None:
    await make().setup([])
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute("update shop_migrations set sha256 = 'other'")
    connection.close()
    async with make().migrations.connected() as migrations:
        with pytest.raises(SchemaMismatch, match="init is changed"):
            await migrations.check()


async def test_the_raw_sql_does_the_same(make: Callable[[], DatabaseAdapter], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.executescript(sql("sqlite", prefix="shop"))
    connection.close()
    adapter = make()
    await adapter.open()
    await adapter.migrations.check()
    await adapter.aclose()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres", "mysql"])
def test_the_raw_sql_needs_no_connection(dialect: str) -> None:
    assert "create table shop_jobs" in sql(dialect, prefix="shop").replace("if not exists ", "")
    assert "shop_jobs" not in sql(dialect, prefix="shop", since=1)
    with pytest.raises(ConfigError):
        sql("oracle")
