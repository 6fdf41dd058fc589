"""The application's own transaction as a client: ``dispatch(job).using(connection)``.

Known by its class's module, so that no library is imported for it: asyncpg and psycopg (async) connections on
PostgreSQL, aiosqlite on SQLite, aiomysql and asyncmy on MySQL, and SQLAlchemy's AsyncSession and AsyncConnection
over any of these. Beginning, committing and rolling back stay the application's.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from nimbusq.errors import InvalidOption
from nimbusq_database.client import Client, Row
from nimbusq_database.sqlite.client import bound, bound_rows, is_one_step, packed
from nimbusq_database.statements import Part, Style

Adopted = tuple[Client, Style]


async def adopt(tx: object, dialect: str) -> Adopted:
    """A client on the transaction. Raises InvalidOption where the dialect cannot use it, or it has not begun."""
    connection: Any = await _unwrapped(tx) if _library(tx) == "sqlalchemy" else tx
    known = _ADOPTERS[dialect].get(_library(connection))
    if known is None:
        raise InvalidOption(
            f"using() takes a connection to the {dialect} database that the jobs are in "
            f"({', '.join(sorted(_ADOPTERS[dialect]))} or SQLAlchemy over one of them), not {type(tx).__qualname__}."
        )
    return known(connection)


def _library(connection: object) -> str:
    return type(connection).__module__.partition(".")[0]


async def _unwrapped(tx: Any) -> object:
    """The driver's connection under SQLAlchemy, which begins its transaction with its first statement."""
    connection = await tx.connection() if hasattr(type(tx), "flush") else tx  # of a session
    await connection.exec_driver_sql("select 1")
    raw = await connection.get_raw_connection()
    driver_connection: object = raw.driver_connection
    return driver_connection


def _asyncpg(connection: Any) -> Adopted:
    from nimbusq_database.postgres.client import PostgresClient

    _check_begun(connection.is_in_transaction())
    return PostgresClient(connection), "dollar"


def _psycopg(connection: Any) -> Adopted:
    idle = connection.info.transaction_status == connection.info.transaction_status.IDLE
    _check_begun(not (idle and connection.autocommit))
    return PsycopgClient(connection), "pyformat"


def _aiosqlite(connection: Any) -> Adopted:
    _check_begun(connection.in_transaction or connection.isolation_level is not None)
    return AiosqliteClient(connection), "qmark"


def _aiomysql(connection: Any) -> Adopted:
    from nimbusq_database.mysql.client import MysqlClient

    return MysqlClient(connection, counts=False), "pyformat"


_ADOPTERS: Final[Mapping[str, Mapping[str, Callable[[Any], Adopted]]]] = {
    "sqlite": {"aiosqlite": _aiosqlite},
    "postgres": {"asyncpg": _asyncpg, "psycopg": _psycopg},
    "mysql": {"aiomysql": _aiomysql, "asyncmy": _aiomysql},
}


def _check_begun(begun: object) -> None:
    if not begun:
        raise InvalidOption("using() takes a connection inside a transaction: begin one first.")


class PsycopgClient:
    """Statements on a psycopg AsyncConnection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> Sequence[Row]:
        (part,) = parts
        dict_row = import_module("psycopg.rows").dict_row
        async with self._connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(part.text, _json_rows(parameters))
            rows: Sequence[Row] = await cursor.fetchall()
            return rows

    async def execute(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> int:
        (part,) = parts
        async with self._connection.cursor() as cursor:
            await cursor.execute(part.text, _json_rows(parameters))
            count: int = cursor.rowcount
            return count

    async def insert(
        self, parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> int:
        (part,) = parts
        columns = {name: [row[name] for row in rows] for name in part.names if name not in shared}
        return await self.execute(parts, {**columns, **shared})


class AiosqliteClient:
    """Statements on an aiosqlite connection, whatever its own row factory."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> Sequence[Row]:
        (part,) = parts
        async with self._connection.cursor() as cursor:
            cursor.row_factory = sqlite3.Row
            await cursor.execute(part.text, bound(part, parameters))
            rows: Sequence[Row] = await cursor.fetchall()
            return rows

    async def execute(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> int:
        (part,) = parts
        async with self._connection.execute(part.text, bound(part, parameters)) as cursor:
            count: int = cursor.rowcount
            return count

    async def insert(
        self, parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> int:
        (part,) = parts
        if is_one_step(part):
            return await self.execute(parts, {**shared, **packed(rows)})
        async with self._connection.executemany(part.text, bound_rows(part, rows, shared)) as cursor:
            count: int = cursor.rowcount
            return count


def _json_rows(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(value) if name in {"rows", "history"} else value
        for name, value in parameters.items()
    }
