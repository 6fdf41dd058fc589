"""Statements on an asyncpg connection."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nimbusq_database.client import Row
from nimbusq_database.statements import Part


class PostgresClient:
    """`nimbusq_database.client.Client`. Lists travel as arrays; `rows` and `history`, lists of rows, as JSON."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> Sequence[Row]:
        (part,) = parts
        rows: Sequence[Row] = await self._connection.fetch(part.text, *arguments(part, parameters))
        return rows

    async def execute(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> int:
        (part,) = parts
        return changed(await self._connection.execute(part.text, *arguments(part, parameters)))

    async def insert(
        self, parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> int:
        (part,) = parts
        columns = [shared[name] if name in shared else [row[name] for row in rows] for name in part.names]
        return changed(await self._connection.execute(part.text, *columns))


def arguments(part: Part, parameters: Mapping[str, Any]) -> list[Any]:
    """The parameters in the order of their numbers."""
    return [
        json.dumps(parameters[name]) if name in {"rows", "history"} else parameters[name]
        for name in part.names
    ]


def changed(status: str) -> int:
    """The number at the end of a command's tag: ``INSERT 0 5``."""
    word = status.rpartition(" ")[2]
    return int(word) if word.isdigit() else 0
