"""Pages of a list that changes while it is read: the cursor is the number of the last row shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nimbusq.errors import InvalidOption
from nimbusq_database.client import Row

LAST: Final = 2**62
"""Above every row's number: where newest-first lists begin."""


def number(cursor: str, start: int) -> int:
    """The number that a cursor stands for. Raises InvalidOption for what is none."""
    if not cursor:
        return start
    try:
        return int(cursor)
    except ValueError:
        raise InvalidOption(
            f"{cursor!r} is no cursor: pass on the one that came with the last page."
        ) from None


def cut(rows: Sequence[Row], limit: int, column: str = "seq") -> tuple[Sequence[Row], str]:
    """The page and the cursor of the next one, from one row more than the page shows."""
    page = rows[:limit]
    return page, str(page[-1][column]) if page and len(rows) > limit else ""
