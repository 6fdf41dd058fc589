"""Statements on an aiomysql or asyncmy connection. Both write the values into the text themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from nimbusq_database.client import Row
from nimbusq_database.statements import Part

_VALUES: Final = re.compile(r"\bvalues\s*\(", re.IGNORECASE)
_LARGEST: Final = 1_000_000
"""Bytes of one insert, well below every server's max_allowed_packet."""


class MysqlClient:
    """`nimbusq_database.client.Client`. A list travels as JSON where its parameter says so.

    begins: a transaction begins with the first statement, and in its round trip. counts: the connection counts rows
    that were changed, not those that were found (SQLAlchemy has it set so), and can tell how many an insert has
    stored. named_locks: locks were asked for that are the session's, to be let go of after the transaction.
    """

    __slots__ = ("_connection", "_counts", "_opening", "named_locks")

    def __init__(self, connection: Any, *, begins: bool = False, counts: bool = True) -> None:
        self._connection = connection
        self._opening = "begin;" if begins else ""
        self._counts = counts
        self.named_locks = False

    async def fetch(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> Sequence[Row]:
        async with self._connection.cursor() as cursor:
            await self._ask(cursor, *_together(parts, parameters))
            while not cursor.description and await cursor.nextset():
                pass
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in await cursor.fetchall()]

    async def execute(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> int:
        async with self._connection.cursor() as cursor:
            await self._ask(cursor, *_together(parts, parameters))
            while await cursor.nextset():
                pass
            count: int = cursor.rowcount
            return count

    async def insert(
        self, parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> int:
        """The last part with its tuple of values repeated for each row."""
        *first, part = parts
        head, values, tail = split_values(part.text)
        count = 0
        async with self._connection.cursor() as cursor:
            for before in first:
                await self._ask(cursor, before.text)
            for chunk in _chunks([cursor.mogrify(values, {**shared, **_hexed(row)}) for row in rows]):
                await self._ask(cursor, head + ",".join(chunk) + tail)
                count += cursor.rowcount
        return count if self._counts else 0

    async def _ask(self, cursor: Any, text: str, values: Mapping[str, Any] | None = None) -> None:
        """Run a text's statements in one round trip; the cursor has the answer to the first one then. Both clients
        let a text have several."""
        opening, self._opening = self._opening, ""
        self.named_locks = self.named_locks or "get_lock(" in text
        await cursor.execute(opening + text, values)
        if opening:
            await cursor.nextset()


def _together(parts: Sequence[Part], parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """The parts of a statement as one text, and its arguments."""
    if len(parts) == 1:
        return bound(parts[0], parameters)
    texts, values = list[str](), dict[str, Any]()
    for part in parts:
        text, own = bound(part, parameters)
        texts.append(text)
        values |= own or {}
    return ";".join(texts), values or None


def bound(part: Part, parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """A part's text and its arguments; none at all for one that has none, so that its text stays as it is.

    Neither client takes a list, so a list's placeholder becomes one placeholder for each of its values.
    """
    text, values = part.text, dict[str, Any]()
    for name in part.names:
        if name == "rows" or name.endswith("_json"):
            values[name] = json.dumps(parameters[name.removesuffix("_json")])
        elif isinstance(value := parameters[name], list):
            items = {f"{name}_{number}": item for number, item in enumerate(value)}
            text = text.replace(f"%({name})s", f"({', '.join(f'%({item})s' for item in items)})")
            values |= items
        else:
            values[name] = value
    return text, values or None


def _hexed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes as hexadecimal text, for ``unhex``: aiomysql 0.3.2 cannot pass bytes beside PyMySQL 1.2."""
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}


def split_values(text: str) -> tuple[str, str, str]:
    """What stands before, in and after the parentheses that follow ``values``."""
    found = _VALUES.search(text)
    assert found is not None, "an insert of rows has values"
    start = found.end() - 1
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return text[:start], text[start : place + 1], text[place + 1 :]
    raise ValueError(f"unbalanced parentheses: {text}")


def _chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for text in texts:
        if chunk and size + len(text) > _LARGEST:
            yield chunk
            chunk, size = [], 0
        chunk.append(text)
        size += len(text)
    if chunk:
        yield chunk
