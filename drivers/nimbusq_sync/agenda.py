"""Jobs ordered by time: what is next in a line, and which lease ends first."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

from nimbusq_sync.row import Row

_SLACK = 64


class Agenda:
    """A heap of (time, ticket, row) from which rows leave in any order, without a search.

    An entry counts only while its ticket is the row's: a row that moved on has taken a new one. Dead entries
    are dropped when they reach the top, and all at once when they outnumber the living, so that the memory
    stays proportional to the rows that are in.
    """

    __slots__ = ("_entries", "_size")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Row]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, time: float, ticket: int, row: Row) -> None:
        """Put the row in; it must be in no other agenda."""
        row.ticket = ticket
        row.agenda = self
        self._size += 1
        heappush(self._entries, (time, ticket, row))

    def first(self) -> tuple[float, int, Row] | None:
        """The earliest living entry, left in place."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if entry[2].ticket == entry[1]:
                return entry
            heappop(entries)
        return None

    def discard(self, row: Row) -> None:
        """Take the row out."""
        row.ticket = 0
        row.agenda = None
        self._size -= 1
        if len(self._entries) > 2 * self._size + _SLACK:
            self._entries = [entry for entry in self._entries if entry[2].ticket == entry[1]]
            heapify(self._entries)

    def pop(self) -> Row:
        """Take out what `first` answered."""
        row = heappop(self._entries)[2]
        row.ticket = 0
        row.agenda = None
        self._size -= 1
        return row

    def postpone(self, time: float) -> None:
        """Give what `first` answered a later time."""
        _, ticket, row = self._entries[0]
        heapreplace(self._entries, (time, ticket, row))
