"""A SQLite URL: which file, and how sure its commits are."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from nimbusq.errors import ConfigError

_CHECKPOINT: Final = 4_000
"""Pages in the journal before they are copied to the file: a page that changed often is then copied once."""
_SYNCHRONOUS: Final = ("off", "normal", "full", "extra")


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """Where the database is and how sure its commits are.

    synchronous: "normal" survives every end of a process, a power cut may take the last commits; "full" waits
    for the disk at each commit.
    """

    path: str
    synchronous: str = "normal"

    @classmethod
    def from_url(cls, url: str) -> SqliteFile:
        """``sqlite:///relative.db`` or ``sqlite:////absolute.db?synchronous=full``. Raises ConfigError."""
        parts = urlsplit(url)
        path = unquote(parts.path).removeprefix("/")
        if parts.netloc or not path or path.startswith(":memory:"):
            raise ConfigError(
                f"{url!r} names no file: write sqlite:///relative.db or sqlite:////absolute/path.db. "
                "For jobs in memory there is the driver memory://."
            )
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        synchronous = options.pop("synchronous", "normal").lower()
        if options or synchronous not in _SYNCHRONOUS:
            raise ConfigError(
                f"{url!r} has an unknown option: there is ?synchronous={'|'.join(_SYNCHRONOUS)}."
            )
        return cls(path, synchronous)

    @property
    def waits_for_disk(self) -> bool:
        """Each commit ends when the disk has it."""
        return self.synchronous in ("full", "extra")

    def connect(self, *, checkpoints: bool = True) -> sqlite3.Connection:
        """A connection for one thread. `running` waits for a busy file, more finely than SQLite does.

        checkpoints: its commits copy the journal to the file when it has grown long, and wait for the disk then.
        """
        connection = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, cached_statements=512)
        connection.row_factory = sqlite3.Row
        connection.execute(f"pragma synchronous = {self.synchronous}")
        connection.execute(f"pragma wal_autocheckpoint = {_CHECKPOINT if checkpoints else 0}")
        connection.execute("pragma busy_timeout = 0")
        return connection
