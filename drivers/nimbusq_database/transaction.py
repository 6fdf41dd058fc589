"""One transaction as the verbs and stores see it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nimbusq_database.client import Client, Row
from nimbusq_database.statements import Statements, Style


class Transaction:
    """Runs statements by their file names, and gathers what is due at its end.

    topics: what to wake waiting callers for once it is committed: queue names, and ``job:<id>``.
    told: those that other processes hear of by its own statement.
    audited: testing mode; every transition is then written down in the same transaction.
    """

    __slots__ = ("_client", "_events", "_statements", "_style", "audited", "told", "topics")

    def __init__(
        self, client: Client, statements: Statements, *, audited: bool, style: Style | None = None
    ) -> None:
        self._client = client
        self._statements = statements
        self._style = style
        self._events: list[dict[str, Any]] = []
        self.audited = audited
        self.topics: set[str] = set()
        self.told: set[str] = set()

    async def fetch(self, statement: str, **parameters: Any) -> Sequence[Row]:
        """Run a statement that answers rows."""
        return await self._client.fetch(self._statements.get(statement, self._style), parameters)

    async def one(self, statement: str, **parameters: Any) -> Row | None:
        """Run a statement that answers one row at most."""
        rows = await self.fetch(statement, **parameters)
        return rows[0] if rows else None

    async def execute(self, statement: str, **parameters: Any) -> int:
        """Run a statement that changes rows; how many it has changed."""
        return await self._client.execute(self._statements.get(statement, self._style), parameters)

    async def insert(self, statement: str, rows: Sequence[Mapping[str, Any]], **shared: Any) -> int:
        """Insert rows in one round trip, with what they share; how many were stored."""
        return await self._client.insert(self._statements.get(statement, self._style), rows, shared)

    async def now(self) -> float:
        """The store's clock, in epoch seconds."""
        row = await self.one("now")
        assert row is not None, "a statement without a table answers one row"
        return float(row["now"])

    async def audit_time(self) -> float:
        """The time of a step about to be taken and noted; 0 where nothing is. Taken before, it is never later than
        the times that the step writes, so that none seems to have been kept too short."""
        return await self.now() if self.audited else 0.0

    def note(self, event: str, job_id: str, token: str, attempt: int, **extra: Any) -> None:
        """Write a transition down, in testing mode."""
        if self.audited:
            self._events.append(
                {
                    "event": event,
                    "job_id": job_id,
                    "token": token,
                    "attempt": attempt,
                    "extra": json.dumps(extra),
                }
            )

    async def finish(self) -> None:
        """Store what was written down."""
        if self._events:
            await self.insert("audit_push", self._events)
