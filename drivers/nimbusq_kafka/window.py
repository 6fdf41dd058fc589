"""What is known of one partition's offsets: where jobs may finish in any order, and a commit is one number.

The committed offset is the lowest unfinished one, so that nothing is ever skipped. What is known above it goes
into the commit's metadata: which offsets have finished, which are running, and how often a run of each was
lost. Since the claim is committed before its run starts, a run is counted whatever happens to its worker, and
a job that kills its workers ends without any store.
"""

from __future__ import annotations

from typing import Final, Self

from nimbusq_kafka.metadata import Marks, decode, encode

FULL: Final = 3_072
"""Bytes of metadata at which no more is claimed; Kafka takes 4,096 (``offset.metadata.max.bytes``)."""
HARD_LIMIT: Final = 4_096
SPAN: Final = 500_000
"""Offsets above the lowest unfinished one at which no more is claimed: what finished compresses to nothing, but
not for free."""
_BYTES_PER_START: Final = 4
"""The most that one more running offset adds, in base64."""


class Window:
    """The marks of one partition. Owned by the consumer's event loop."""

    __slots__ = ("_done", "_starts", "base", "lost", "running", "size")

    def __init__(self, base: int, marks: Marks | None = None) -> None:
        self.base = base
        """The lowest offset that has not finished: what is committed."""
        self.running = {base + step for step in marks.running} if marks else set[int]()
        self.lost = {base + step: count for step, count in marks.lost} if marks else dict[int, int]()
        self.size = 0
        """Bytes of the metadata as last encoded."""
        self._done = marks.done if marks else 0
        self._starts = 0
        self._advance()

    @classmethod
    def read(cls, offset: int, metadata: str) -> tuple[Self, bytes]:
        """The window that was committed, and who committed it (b"" if nobody who writes such marks)."""
        marks = decode(metadata)
        return cls(offset, marks), marks.owner if marks else b""

    def write(self, owner: bytes) -> str:
        """The metadata to commit with `base`."""
        text = encode(
            Marks(
                owner=owner,
                done=self._done,
                running=tuple(sorted(offset - self.base for offset in self.running)),
                lost=tuple(sorted((offset - self.base, count) for offset, count in self.lost.items())),
            )
        )
        self.size, self._starts = len(text), 0
        return text

    @property
    def finished(self) -> int:
        """Offsets above `base` that have finished."""
        return self._done.bit_count()

    @property
    def span(self) -> int:
        """From the lowest unfinished offset to the highest finished one."""
        return self._done.bit_length()

    @property
    def room(self) -> int:
        """How many more offsets may be started before the next commit, so that its metadata fits."""
        if self.size >= FULL or self.span >= SPAN:
            return 0
        return (HARD_LIMIT - 64 - self.size) // _BYTES_PER_START - self._starts

    def is_done(self, offset: int) -> bool:
        """The offset has finished."""
        return offset < self.base or bool(self._done >> (offset - self.base) & 1)

    def start(self, *offsets: int) -> None:
        """Claimed, once the commit that carries them has succeeded."""
        self.running.update(offsets)
        self._starts += len(offsets)

    def withdraw(self, offset: int) -> None:
        """The claim came to nothing: as if it had never been."""
        self.running.discard(offset)

    def finish(self, *offsets: int) -> None:
        """Done with, whatever the outcome."""
        self.running.difference_update(offsets)
        if self.lost:
            for offset in offsets:
                self.lost.pop(offset, None)
        open_ones = [offset for offset in offsets if offset >= self.base]
        if not open_ones:
            return
        lowest = min(open_ones)
        marks = 0  # apart from the bitmap, which may be long and is copied by each change
        for offset in open_ones:
            marks |= 1 << (offset - lowest)
        self._done |= marks << (lowest - self.base)
        self._advance()

    def skip(self, start: int, stop: int) -> None:
        """There is nothing at these offsets: deleted records, or a transaction's marks."""
        if (start := max(start, self.base)) < stop:
            self._done |= ((1 << (stop - start)) - 1) << (start - self.base)
            self._advance()

    def give_up(self, offset: int) -> None:
        """The run came to nothing that anybody knows of: it counts."""
        self.running.discard(offset)
        self.lost[offset] = self.lost.get(offset, 0) + 1

    def take_over(self) -> frozenset[int]:
        """A new owner counts the runs that its predecessor has left behind; which they are."""
        left = frozenset(self.running)
        for offset in left:
            self.give_up(offset)
        return left

    def _advance(self) -> None:
        if self._done & 1:
            finished = (~self._done & (self._done + 1)).bit_length() - 1
            self._done >>= finished
            self.base += finished
