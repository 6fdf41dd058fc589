"""The wire form of a window's marks: a text of at most 4,096 bytes beside the committed offset.

One letter, then base64 of the smaller of the bytes and their deflated form. The bytes are the owner's nonce, the
running offsets, the lost runs, and the bitmap of finished offsets, all counted from the committed offset;
numbers are LEB128, offsets in ascending order as the distance to the one before.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

OWNER_BYTES: Final = 8
_PLAIN: Final = "p"
_DEFLATED: Final = "z"
_SHORT: Final = 128
"""Bytes that are not worth deflating."""
_MOST: Final = 1 << 20
"""Bytes that metadata may inflate to: anybody who may commit for the group could have written it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Distances from the committed offset. done: a bitmap; running: ascending; lost: (distance, count), ascending.

    owner: who committed it, so that a member can tell whether anybody else has been at its partition.
    """

    owner: bytes
    done: int = 0
    running: tuple[int, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()


def encode(marks: Marks) -> str:
    """The metadata of a commit."""
    raw = bytearray(marks.owner)
    raw += _numbers([len(marks.running), *_distances(marks.running)])
    raw += _numbers([len(marks.lost)])
    for step, (_, count) in zip(_distances(step for step, _ in marks.lost), marks.lost, strict=True):
        raw += _numbers([step, count])
    raw += marks.done.to_bytes((marks.done.bit_length() + 7) // 8, "little")
    if len(raw) > _SHORT and len(deflated := zlib.compress(raw)) < len(raw):
        return _DEFLATED + base64.b64encode(deflated).decode()
    return _PLAIN + base64.b64encode(raw).decode()


def decode(text: str) -> Marks | None:
    """What `encode` wrote; None for any other text, since the offset beside it counts all the same."""
    try:
        raw = base64.b64decode(text[1:], validate=True)
        if text[:1] == _DEFLATED:
            raw = zlib.decompressobj().decompress(raw, _MOST)
        elif text[:1] != _PLAIN:
            return None
        return _read(raw)
    except (ValueError, IndexError, binascii.Error, zlib.error):
        return None


def _read(raw: bytes) -> Marks | None:
    if len(raw) < OWNER_BYTES:
        return None
    reader = _Reader(raw, OWNER_BYTES)
    running = tuple(_sums(reader.number() for _ in range(reader.number())))
    lost, place = [], 0
    for _ in range(reader.number()):
        place += reader.number()
        lost.append((place, reader.number()))
    done = int.from_bytes(raw[reader.position :], "little")
    return Marks(owner=raw[:OWNER_BYTES], done=done, running=running, lost=tuple(lost))


def _numbers(values: Iterable[int]) -> bytes:
    raw = bytearray()
    for value in values:
        while value > 0x7F:
            raw.append(value & 0x7F | 0x80)
            value >>= 7
        raw.append(value)
    return bytes(raw)


def _distances(places: Iterable[int]) -> Iterator[int]:
    before = 0
    for place in places:
        yield place - before
        before = place


def _sums(distances: Iterable[int]) -> Iterator[int]:
    place = 0
    for distance in distances:
        place += distance
        yield place


class _Reader:
    """Reads numbers from bytes; IndexError at their end."""

    def __init__(self, raw: bytes, position: int) -> None:
        self._raw = raw
        self.position = position

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self._raw[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
