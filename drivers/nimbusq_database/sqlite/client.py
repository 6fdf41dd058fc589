"""Statements on a sqlite3 connection, from inside its thread."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from nimbusq_database.client import Row
from nimbusq_database.statements import Part


class SqliteClient:
    """`nimbusq_database.client.Client`; nothing in it suspends. Lists travel as JSON."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> Sequence[Row]:
        (part,) = parts
        return self._connection.execute(part.text, bound(parameters)).fetchall()

    async def execute(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> int:
        (part,) = parts
        return self._connection.execute(part.text, bound(parameters)).rowcount

    async def insert(self, parts: Sequence[Part], rows: Sequence[Mapping[str, Any]]) -> int:
        (part,) = parts
        return self._connection.executemany(part.text, rows).rowcount


def bound(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as SQLite takes them."""
    return {
        name: json.dumps(value) if isinstance(value, list) else value for name, value in parameters.items()
    }
