"""Jobs that ended, newest first, the oldest dropped in passing."""

from __future__ import annotations

from collections.abc import Sequence

from nimbusq.driver import HistoryRow
from nimbusq_sync import paging
from nimbusq_sync.state import State


def keep(state: State, row: HistoryRow, now: float) -> None:
    """Insert the row, or replace the one of that id."""
    history, settings = state.history, state.settings
    history[row.id] = (state.number(), row._replace(finished_at=now))
    history.move_to_end(row.id)
    while len(history) > settings.history_limit:
        history.popitem(last=False)
    expired = now - settings.history_ttl
    while history and next(iter(history.values()))[1].finished_at <= expired:
        history.popitem(last=False)


class MemoryHistory:
    """`nimbusq.driver.History` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def push(self, rows: Sequence[HistoryRow]) -> None:
        state = self._state
        with state.lock:
            now = state.now()
            for row in rows:
                keep(state, row, now)

    async def page(
        self, *, cursor: str = "", limit: int = 50, state: str | None = None, queue: str | None = None
    ) -> tuple[Sequence[HistoryRow], str]:
        with self._state.lock:
            oldest = self._state.now() - self._state.settings.history_ttl
            rows = (
                (number, row)
                for number, row in reversed(self._state.history.values())
                if row.finished_at > oldest
                and (state is None or row.state == state)
                and (queue is None or row.queue == queue)
            )
            return paging.newest_first(rows, cursor, limit)

    async def keep_result(self, job_id: str, result: bytes, ttl: float) -> None:
        state = self._state
        with state.lock:
            now = state.now()
            state.results.put(job_id, result, now + ttl, now)
            state.bells.ring_job(job_id)
