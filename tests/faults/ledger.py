"""What handlers did, one line an event, appended in one step by any number of processes."""

from __future__ import annotations

import functools
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Ledger:
    """A file of events. Times are the machine's monotonic clock, which all processes share, in seconds."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.touch()
        self._file: int | None = None

    def note(self, event: str, **details: Any) -> None:
        """Write one line; it is in the file when this returns, whatever happens to this process next."""
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        line = {"event": event, "pid": os.getpid(), "at": time.monotonic(), **details}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def lines(self, *events: str) -> list[Line]:
        """All lines, or those of these events, in the order in which they were written."""
        lines = map(json.loads, self.path.read_bytes().splitlines())
        return [line for line in lines if not events or line["event"] in events]

    def count(self, event: str) -> int:
        return len(self.lines(event))

    def per(self, event: str, key: str = "n") -> Counter[Any]:
        """How often each value of `key` had the event."""
        return Counter(line[key] for line in self.lines(event) if key in line)

    def by(self, key: str, lines: Iterable[Line]) -> dict[Any, list[Line]]:
        """The lines grouped by the value of `key`."""
        groups: defaultdict[Any, list[Line]] = defaultdict(list)
        for line in lines:
            groups[line[key]].append(line)
        return dict(groups)


@functools.cache
def ledger() -> Ledger:
    """The ledger of this process's run."""
    return Ledger(os.environ["LEDGER"])
