"""Ids come from the client, so that every call can be repeated, or are derived, so that a step is done once."""

from __future__ import annotations

import os
import time
import uuid
from typing import Final

_NAMESPACE: Final = uuid.UUID("6f6c1f0e-6d1b-5c0a-9d3e-0a6d69626e71")


def new_id() -> str:
    """A UUIDv7 (RFC 9562): random, and sorted by the millisecond it was made in."""
    random = int.from_bytes(os.urandom(10))
    value = (time.time_ns() // 1_000_000) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def derived_id(parent: str, part: object) -> str:
    """The id of `part` of `parent`, the same each time: a chain's link, a batch's member or callback."""
    return str(uuid.uuid5(_NAMESPACE, f"{parent}/{part}"))


def new_token() -> str:
    """128 random bits for a claim."""
    return os.urandom(16).hex()
