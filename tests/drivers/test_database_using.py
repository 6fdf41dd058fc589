"""Dispatch in the application's own transaction: visible at its commit only, gone with its rollback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiomysql
import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from nimbusq.driver import Claim, Done, Lane, NewBatch, Renewal, Settlement, SettleStatus, Want
from nimbusq.envelope import Envelope, Unique
from nimbusq.errors import InvalidOption
from nimbusq.ids import new_id
from tests.drivers.database_env import DatabaseEnv, database_env

Open = Callable[[str], AbstractAsyncContextManager["Application"]]


@dataclass
class Application:
    """A transaction of the user's that has begun, by whatever library."""

    tx: Any
    commit: Callable[[], Any]
    rollback: Callable[[], Any]


@asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[Application]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield Application(connection, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def with_psycopg(url: str) -> AsyncIterator[Application]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Application(connection, connection.commit, connection.rollback)


@asynccontextmanager
async def with_aiosqlite(url: str) -> AsyncIterator[Application]:
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        yield Application(connection, connection.commit, connection.rollback)


@asynccontextmanager
async def with_aiomysql(url: str) -> AsyncIterator[Application]:
    parts = urlsplit(url)
    connection = await aiomysql.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password,
        db=parts.path.removeprefix("/"),
    )
    yield Application(connection, connection.commit, connection.rollback)
    await connection.ensure_closed()


def with_session(scheme: str) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Application]:
        engine = create_async_engine(f"{scheme}:{url.partition(':')[2]}")
        async with AsyncSession(engine) as session:
            yield Application(session, session.commit, session.rollback)
        await engine.dispose()

    return opened


def with_connection(scheme: str) -> Open:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Application]:
        engine = create_async_engine(f"{scheme}:{url.partition(':')[2]}")
        async with engine.connect() as connection:
            yield Application(connection, connection.commit, connection.rollback)
        await engine.dispose()

    return opened


SQLITE = {
    "aiosqlite": with_aiosqlite,
    "sqlalchemy session": with_session("sqlite+aiosqlite"),
}
POSTGRES = {
    "asyncpg": with_asyncpg,
    "psycopg": with_psycopg,
    "sqlalchemy session, asyncpg": with_session("postgresql+asyncpg"),
    "sqlalchemy connection, psycopg": with_connection("postgresql+psycopg"),
}
MYSQL = {
    "aiomysql": with_aiomysql,
    "sqlalchemy session, aiomysql": with_session("mysql+aiomysql"),
}


def envelope(**options: Any) -> Envelope:
    return Envelope(id=new_id(), name="Send", queue="mail", body=b'{"n":1}\xff\x00', **options)


async def claim(env: DatabaseEnv) -> list[Claim]:
    want = Want(token=new_id(), limit=100, lease=30, lanes=(Lane(queue="mail", limit=100),))
    return list((await env.adapter.claim(want)).claims)


async def pending(env: DatabaseEnv) -> int | None:
    """Read without the writer's lock, which SQLite gives to one transaction at a time."""
    (depth,) = await env.adapter.depth(["mail"])
    return depth.pending


class UsingSuite:
    """What each library's transaction must show; `application` has begun one."""

    async def test_a_job_appears_with_the_commit(self, env: DatabaseEnv, application: Application) -> None:
        sent = envelope()
        (pushed,) = await env.adapter.push([sent], tx=application.tx)
        assert pushed.id == sent.id
        assert await pending(env) == 0
        await application.commit()
        assert [found.envelope for found in await claim(env)] == [sent]

    async def test_a_large_push_may_hold_jobs_that_are_there(
        self, env: DatabaseEnv, application: Application
    ) -> None:
        """No statement fails for it, which would end the application's transaction."""
        there, new = [envelope() for _ in range(60)], [envelope() for _ in range(60)]
        await env.adapter.push(there)
        pushed = await env.adapter.push([*new, *there], tx=application.tx)
        assert [one.id for one in pushed] == [one.id for one in [*new, *there]]
        await application.commit()
        assert await pending(env) == 120

    async def test_a_rollback_takes_the_job_and_its_unique_slot(
        self, env: DatabaseEnv, application: Application
    ) -> None:
        first, second = envelope(unique=Unique(key="k")), envelope(unique=Unique(key="k"))
        await env.adapter.push([first], tx=application.tx)
        await application.rollback()
        assert await claim(env) == []
        (pushed,) = await env.adapter.push([second])
        assert pushed.holder is None

    async def test_the_holder_of_a_slot_is_named(self, env: DatabaseEnv, application: Application) -> None:
        holder = envelope(unique=Unique(key="k"))
        await env.adapter.push([holder])
        (pushed,) = await env.adapter.push([envelope(unique=Unique(key="k"))], tx=application.tx)
        assert pushed.holder == holder.id
        await application.rollback()

    async def test_completion_is_a_part_of_it(self, env: DatabaseEnv, application: Application) -> None:
        await env.adapter.push([envelope()])
        (running,) = await claim(env)
        settlement = Settlement(claim=running, outcome=Done(b"1"), push=(envelope(),))
        (settled,) = await env.adapter.settle([settlement], tx=application.tx)
        assert settled.status is SettleStatus.SETTLED
        await application.rollback()
        assert await env.adapter.extend([running], lease=30) == [Renewal.RENEWED]
        (settled,) = await env.adapter.settle([settlement])
        assert settled.status is SettleStatus.SETTLED


class TestSqlite(UsingSuite):
    @pytest.fixture
    async def env(self, tmp_path: Path) -> AsyncIterator[DatabaseEnv]:
        async with database_env(f"sqlite:///{tmp_path / 'jobs.db'}") as env:
            yield env

    @pytest.fixture(params=SQLITE.values(), ids=SQLITE)
    async def application(
        self, env: DatabaseEnv, request: pytest.FixtureRequest
    ) -> AsyncIterator[Application]:
        async with request.param(env.url) as application:
            yield application


class TestPostgres(UsingSuite):
    @pytest.fixture
    async def env(self, postgres_url: str) -> AsyncIterator[DatabaseEnv]:
        async with database_env(postgres_url) as env:
            yield env

    @pytest.fixture(params=POSTGRES.values(), ids=POSTGRES)
    async def application(
        self, env: DatabaseEnv, request: pytest.FixtureRequest
    ) -> AsyncIterator[Application]:
        async with request.param(env.url) as application:
            yield application

    async def test_a_row_that_the_user_has_locked_does_not_hold_up_renewals(
        self, env: DatabaseEnv, application: Application
    ) -> None:
        await env.adapter.push([envelope(), envelope()])
        first, second = await claim(env)
        await env.adapter.settle([Settlement(claim=first, outcome=Done())], tx=application.tx)
        renewed = await env.adapter.extend([first, second], lease=6)
        assert renewed == [Renewal.RENEWED, Renewal.RENEWED]
        await application.commit()
        assert await env.adapter.extend([first], lease=6) == [Renewal.LOST]


class TestMysql(UsingSuite):
    @pytest.fixture
    async def env(self, mysql_url: str) -> AsyncIterator[DatabaseEnv]:
        async with database_env(mysql_url) as env:
            yield env

    @pytest.fixture(params=MYSQL.values(), ids=MYSQL)
    async def application(
        self, env: DatabaseEnv, request: pytest.FixtureRequest
    ) -> AsyncIterator[Application]:
        async with request.param(env.url) as application:
            yield application

    async def test_a_row_that_the_user_has_locked_does_not_hold_up_renewals(
        self, env: DatabaseEnv, application: Application
    ) -> None:
        await TestPostgres().test_a_row_that_the_user_has_locked_does_not_hold_up_renewals(env, application)


async def test_a_connection_of_another_kind_is_refused(tmp_path: Path) -> None:
    async with database_env(f"sqlite:///{tmp_path / 'jobs.db'}") as env:
        with pytest.raises(InvalidOption, match="takes a connection to the sqlite database"):
            await env.adapter.push([envelope()], tx=object())


async def test_a_connection_without_a_transaction_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with (
        database_env(f"sqlite:///{path}") as env,
        aiosqlite.connect(path, isolation_level=None) as plain,
    ):
        with pytest.raises(InvalidOption, match="begin one first"):
            await env.adapter.push([envelope()], tx=plain)
        assert await claim(env) == []


@pytest.mark.parametrize(
    "url",
    [
        "sqlite",
        pytest.param("postgres_url", marks=pytest.mark.postgres),
        pytest.param("mysql_url", marks=pytest.mark.mysql),
    ],
)
async def test_a_hundred_commits_and_rollbacks(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """All of what was committed, none of what was rolled back."""
    found = f"sqlite:///{tmp_path / 'jobs.db'}" if url == "sqlite" else request.getfixturevalue(url)
    opener: Open = {"sqlite": with_aiosqlite, "postgres_url": with_asyncpg, "mysql_url": with_aiomysql}[url]
    committed = [envelope() for _ in range(100)]
    async with database_env(found) as env:
        await env.adapter.stores.batches.create(NewBatch(id="b"))
        for sent in committed:
            async with opener(found) as application:
                await env.adapter.push([sent], tx=application.tx)
                await application.commit()
            async with opener(found) as application:
                await env.adapter.push([envelope()], tx=application.tx)
                await application.rollback()
        assert {one.id for one in await claim(env)} == {sent.id for sent in committed}
