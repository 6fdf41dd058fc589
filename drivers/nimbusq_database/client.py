"""What the verbs and stores need of a database connection: three calls, the same for every client library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from nimbusq_database.statements import Part

T = TypeVar("T")


class Row(Protocol):
    """A row of an answer; its columns are found by their names."""

    def __getitem__(self, column: str, /) -> Any: ...


class Client(Protocol):
    """A connection inside one transaction. Parameters go by name; a list stands for a set.

    On SQLite no call ever suspends, so that a whole transaction runs in the connection's thread in one go.
    """

    async def fetch(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> Sequence[Row]:
        """The rows of the first part that returns any; the parts after it still run."""
        ...

    async def execute(self, parts: Sequence[Part], parameters: Mapping[str, Any]) -> int:
        """How many rows the last part has changed."""
        ...

    async def insert(
        self, parts: Sequence[Part], rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
    ) -> int:
        """Insert rows that may hold bytes, in one round trip; `shared` are the parameters that all have in common.

        How many were stored (others were there), or fewer where that is not known.
        """
        ...


Work: TypeAlias = Callable[[Client], Awaitable[T]]
"""The body of a transaction. It may run more than once: the store asks for it again after a deadlock."""
