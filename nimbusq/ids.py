"""Ids come from the client, so that every call can be repeated, or are derived, so that a step is done once."""

from __future__ import annotations

import os
import time
import uuid
from typing import Final

_VARIANT: Final = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""The digit that marks a UUID of RFC 9562, by a random one."""
_NAMESPACE: Final = uuid.UUID("6f6c1f0e-6d1b-5c0a-9d3e-0a6d69626e71")


def new_id() -> str:
    """A UUIDv7 (RFC 9562): random, and sorted by the millisecond it was made in."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[str]:
    """Several of them, with one call to the system's random generator."""
    now = f"{time.time_ns() // 1_000_000:012x}"
    begin, random = f"{now[:8]}-{now[8:]}-7", os.urandom(10 * count).hex()
    return [
        f"{begin}{random[at : at + 3]}-{_VARIANT[random[at + 3]]}{random[at + 4 : at + 7]}-{random[at + 7 : at + 19]}"
        for at in range(0, 20 * count, 20)
    ]


def derived_id(parent: str, part: object) -> str:
    """The id of `part` of `parent`, the same each time: a chain's link, a batch's member or callback."""
    return str(uuid.uuid5(_NAMESPACE, f"{parent}/{part}"))


def new_token() -> str:
    """128 random bits for a claim."""
    return os.urandom(16).hex()
