"""Statements on a sqlite3 connection, from inside its thread."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from operator import itemgetter
from typing import Any

from nimbusq_database.client import Row
from nimbusq_database.statements import Part


class SqliteClient:
    """`nimbusq_database.client.Client`; nothing in it suspends. Lists travel as JSON.

    All processes that use one file share the host's clock, so the time is bound as a parameter: SQLite's own
    functions know no more than milliseconds, too coarse to keep jobs in the order of their arrival.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> Sequence[Row]:
        (part,) = parts
        return self._connection.execute(part.text, bound(part, parameters)).fetchall()

    async def execute(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> int:
        (part,) = parts
        return self._connection.execute(part.text, bound(part, parameters)).rowcount

    async def insert(
        self, parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> int:
        (part,) = parts
        if is_one_step(part):
            return await self.execute(parts, {**shared, **packed(rows)})
        if self._connection.in_transaction:
            return self._insert_each(part, rows, shared)
        with self._connection:
            self._connection.execute("begin immediate")
            return self._insert_each(part, rows, shared)

    def _insert_each(self, part: Part, rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]) -> int:
        return self._connection.executemany(part.text, bound_rows(part, rows, shared)).rowcount


def bound(part: Part, parameters: Mapping[str, Any]) -> list[Any]:
    """The parameters as SQLite takes them, with the time."""
    now = time.time()
    return [now if name == "now" else _value(parameters[name]) for name in part.names]


def bound_rows(
    part: Part, rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
) -> Iterator[Sequence[Any]]:
    """The same for many rows at once, none of which holds a list."""
    in_order = itemgetter(*part.names)
    every = {**shared, "now": time.time()}
    return (in_order({**every, **row}) for row in rows)


def is_one_step(part: Part) -> bool:
    """An insert that takes all its rows by one parameter: sqlite3 lets go of the interpreter's lock once for it,
    not once for each row, which is slow beside a busy thread."""
    return "pieces" in part.names


def packed(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows of an id and its bytes for such an insert: `pieces`, a JSON array of [id, start, length], and `bytes`."""
    pieces, start = list[str](), 1
    for row in rows:
        length = len(row["wire"])
        pieces.append(f"[{_quoted(row['id'])},{start},{length}]")
        start += length
    return {"pieces": f"[{','.join(pieces)}]", "bytes": b"".join([row["wire"] for row in rows])}


def _value(value: Any) -> Any:
    """Lists of ids, the most frequent ones, are written without the encoder, which is slow to begin."""
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], str):
        return f"[{','.join(map(_quoted, value))}]"
    return json.dumps(value)
