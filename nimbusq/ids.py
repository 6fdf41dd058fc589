"""Ids come from the client, so that every call can be repeated, or are derived, so that a step is done once."""

from __future__ import annotations

import os
import time
import uuid
from typing import Final

_NAMESPACE: Final = uuid.UUID("6f6c1f0e-6d1b-5c0a-9d3e-0a6d69626e71")


def new_id() -> str:
    """A UUIDv7 (RFC 9562): random, and sorted by the millisecond it was made in."""
    time_part = f"{time.time_ns() // 1_000_000:012x}"
    random = os.urandom(10).hex()
    variant = "89ab"[ord(random[3]) & 3]
    return f"{time_part[:8]}-{time_part[8:]}-7{random[:3]}-{variant}{random[4:7]}-{random[7:19]}"


def derived_id(parent: str, part: object) -> str:
    """The id of `part` of `parent`, the same each time: a chain's link, a batch's member or callback."""
    return str(uuid.uuid5(_NAMESPACE, f"{parent}/{part}"))


def new_token() -> str:
    """128 random bits for a claim."""
    return os.urandom(16).hex()
