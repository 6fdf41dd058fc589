"""One queue: its jobs by priority, each priority a line of those that are due and of those that are not."""

from __future__ import annotations

from collections.abc import Iterator

from nimbusq_sync.agenda import Agenda
from nimbusq_sync.row import Row


class Line:
    """The jobs of one queue and priority."""

    __slots__ = ("delayed", "ready")

    def __init__(self) -> None:
        self.ready = Agenda()
        self.delayed = Agenda()

    def promote(self, now: float) -> None:
        """Move the delayed jobs that are due to the ready ones, where their due time is their place."""
        while (entry := self.delayed.first()) and entry[0] <= now:
            time, ticket, row = entry
            self.delayed.pop()
            self.ready.add(time, ticket, row)

    def next_due(self, now: float) -> Row | None:
        """The job to claim next, left in place."""
        if len(self.delayed):
            self.promote(now)
        entry = self.ready.first()
        return entry[2] if entry else None


class Queue:
    """The queued jobs of one queue, and how many of it run."""

    __slots__ = ("lines", "paused", "running")

    def __init__(self) -> None:
        self.paused = False
        self.running = 0
        self.lines: dict[int, Line] = {}

    def add(self, row: Row, ticket: int, now: float) -> None:
        """Line the job up for its `run_at`."""
        line = self.lines.get(row.header.priority) or self._open(row.header.priority)
        (line.delayed if row.run_at > now else line.ready).add(row.run_at, ticket, row)

    def _open(self, priority: int) -> Line:
        self.lines[priority] = line = Line()
        self.lines = dict(sorted(self.lines.items()))
        return line

    def next_due(self, now: float) -> Row | None:
        """The job to claim next: by priority, then by the time at which it was due."""
        for line in self.lines.values():
            if row := line.next_due(now):
                return row
        return None

    def wakes_at(self) -> float:
        """When the next job gets due, if none joins: a time on the store's clock, or infinity."""
        firsts = (agenda.first() for line in self.lines.values() for agenda in (line.ready, line.delayed))
        return min((entry[0] for entry in firsts if entry), default=float("inf"))

    def counts(self, now: float) -> tuple[int, int, float | None]:
        """Jobs that are due, jobs that are not, and the seconds for which the first due one has waited."""
        for line in self.lines.values():
            line.promote(now)
        pending = sum(len(line.ready) for line in self.lines.values())
        delayed = sum(len(line.delayed) for line in self.lines.values())
        first = min(self._due_times(), default=None)
        return pending, delayed, None if first is None else now - first

    def _due_times(self) -> Iterator[float]:
        for line in self.lines.values():
            if entry := line.ready.first():
                yield entry[0]
