"""The connection on the event loop's own thread, for what takes less time than a hop to another thread and back.

That is a look at whether others have committed, and brief writes: docs/drivers/database.md says how long both take.
What could hold the loop for longer is kept away from here:

- another connection that writes: nothing here waits for it, the writer's thread does;
- the disk: a file whose every commit waits for it has no brief writes, and in the others the thread copies the
  journal to the file. What is left: when another process has copied it, whoever writes next begins it anew and
  waits for the disk once, which may be here;
- a task that sends and sends: the dialect gives the loop's other tasks a turn before each write.
"""

from __future__ import annotations

from typing import Final, TypeVar

from nimbusq_database.client import Work
from nimbusq_database.sqlite.file import SqliteFile
from nimbusq_database.sqlite.running import apply

T = TypeVar("T")

_ROUND: Final = 128
_OF_THE_THREAD: Final = 2
"""Of so many brief writes, how many go to the thread: its first one copies a journal that has grown long to the file,
its second one begins the journal anew, and both wait for the disk. The others together are too little for another
such time."""


class LoopConnection:
    """Opened and used in the loop's thread. `_writes` counts the brief ones, to know whose turn it is."""

    def __init__(self, file: SqliteFile) -> None:
        self._connection = file.connect(checkpoints=False)
        self._waits_for_disk = file.waits_for_disk
        self._writes = 0

    def close(self) -> None:
        self._connection.close()

    def version(self) -> int:
        """A counter in shared memory that moves when another connection commits; to look takes no lock."""
        version: int = self._connection.execute("pragma data_version").fetchone()[0]
        return version

    def take_turn(self) -> bool:
        """Whether the brief write that comes next is for here, not for the thread."""
        turn = self._writes % _ROUND
        self._writes += 1
        return turn >= _OF_THE_THREAD and not self._waits_for_disk

    def write(self, work: Work[T]) -> T:
        """Run the body. Raises sqlite3.OperationalError while another connection writes; nothing was changed then."""
        return apply(self._connection, work)
