"""Runs and their times, counted in shared memory: what has run, and how often, is known without asking a server."""

from __future__ import annotations

import functools
import mmap
import os
import time
from pathlib import Path
from typing import Final

CAPACITY: Final = 500_000
"""Greatest number of jobs of one measurement."""
VARIABLE: Final = "NIMBUSQ_BENCHMARK_TALLY"
"""The environment variable that tells a peer's process where the tally is."""

_COUNT, _TIME = 1, 8


class Tally:
    """For each job number: how often it ran, when it was sent and when its latest run started.

    Times are those of the monotonic clock, which Linux shares among processes. The counter of one job is not
    atomic across processes; two runs of it are missed only within the same few nanoseconds.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            memory = memoryview(mmap.mmap(file.fileno(), 0))
        starts, sent = CAPACITY * _COUNT, CAPACITY * (_COUNT + _TIME)
        self.counts = memory[:starts]
        self.started = memory[starts:sent].cast("d")
        self.sent = memory[sent:].cast("d")

    @classmethod
    def create(cls, path: Path) -> Tally:
        """An empty one."""
        with path.open("wb") as file:
            file.truncate(CAPACITY * (_COUNT + 2 * _TIME))
        return cls(path)

    def clear(self) -> None:
        """Forget every run; nobody may be working."""
        self.counts[:] = bytes(CAPACITY)
        self.started[:] = self.sent[:] = memoryview(bytes(CAPACITY * _TIME)).cast("d")

    def missing(self, numbers: range) -> int:
        """How many of these jobs have not run."""
        return bytes(self.counts[numbers.start : numbers.stop]).count(0)

    def repeated(self, numbers: range) -> int:
        """How many of them ran more than once."""
        return len(numbers) - sum(map(bytes(self.counts[numbers.start : numbers.stop]).count, (0, 1)))

    def starts(self, numbers: range) -> list[float]:
        """When those that ran were started, in that order."""
        return sorted(filter(None, self.started[numbers.start : numbers.stop].tolist()))


@functools.cache
def shared() -> Tally:
    """The tally that the runner made for this process."""
    return Tally(Path(os.environ[VARIABLE]))


def hit(number: int) -> None:
    """What every benchmarked job does: count itself."""
    tally = shared()
    tally.started[number] = time.monotonic()
    tally.counts[number] += 1
