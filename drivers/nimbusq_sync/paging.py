"""Pages of a list that changes while it is read: the cursor is the number of the last entry shown."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from nimbusq.errors import InvalidOption

T = TypeVar("T")


def newest_first(entries: Iterable[tuple[int, T]], cursor: str, limit: int) -> tuple[list[T], str]:
    """The page after `cursor` of entries that come with falling numbers, and the cursor of the next page."""
    before = _number(cursor) if cursor else None
    return _page(((n, entry) for n, entry in entries if before is None or n < before), limit)


def oldest_first(entries: Iterable[tuple[int, T]], cursor: str, limit: int) -> tuple[list[T], str]:
    """The same for entries that come with rising numbers."""
    after = _number(cursor) if cursor else 0
    return _page(((n, entry) for n, entry in entries if n > after), limit)


def _page(entries: Iterable[tuple[int, T]], limit: int) -> tuple[list[T], str]:
    found = list(islice(entries, limit + 1))
    shown = found[:limit]
    return [entry for _, entry in shown], str(shown[-1][0]) if shown and len(found) > limit else ""


def _number(cursor: str) -> int:
    try:
        return int(cursor)
    except ValueError:
        raise InvalidOption(
            f"{cursor!r} is no cursor: pass on the one that came with the last page."
        ) from None
