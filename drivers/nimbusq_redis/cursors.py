"""Cursors of pages: where the last one ended."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final, NoReturn

from nimbusq.errors import InvalidOption
from nimbusq_redis.link import Link

_COUNT: Final = 100
_SCAN = re.compile(r"(\d+):(\d+)")


def check_cursor(cursor: str) -> str:
    """Return a cursor that is a time, or empty. Raises InvalidOption for anything else."""
    try:
        if cursor:
            float(cursor)
    except ValueError:
        refuse(cursor)
    return cursor


def refuse(cursor: str) -> NoReturn:
    """Raise InvalidOption: that is no cursor of ours."""
    raise InvalidOption(f"{cursor!r} is no cursor: pass on the one that came with the last page.") from None


async def scan(
    link: Link, command: str, name: str, cursor: str
) -> AsyncIterator[tuple[list[bytes], str, int]]:
    """Walk through a hash or a set, portion by portion: its members, the portion's cursor, how many to skip.

    Redis decides how many come at once, so that a cursor of ours is "portion:members to skip".
    """
    parts = _SCAN.fullmatch(cursor or "0:0")
    if parts is None:
        refuse(cursor)
    portion, skip = parts[1], int(parts[2])
    while True:
        following, page = await link.command(command, link.key(name), portion, "COUNT", _COUNT)
        members = list(page)[::2] if command == "HSCAN" and isinstance(page, list) else list(page)
        yield members, portion, skip
        portion, skip = str(int(following)), 0
        if portion == "0":
            return
