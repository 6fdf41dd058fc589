"""Jobs that failed for good, until somebody retries or forgets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nimbusq.driver import FailedRecord, FailureGroup, Pushed
from nimbusq_sync import paging
from nimbusq_sync.pushing import push_again
from nimbusq_sync.state import State


def keep(state: State, record: FailedRecord, now: float) -> None:
    """Insert the record, or replace the one of that id, as the newest."""
    state.failed.pop(record.id, None)
    state.failed[record.id] = (state.number(), replace(record, failed_at=now))


class MemoryFailedStore:
    """`nimbusq.driver.FailedStore` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def push(self, record: FailedRecord) -> None:
        state = self._state
        with state.lock:
            keep(state, record, state.now())

    async def get(self, job_id: str) -> FailedRecord | None:
        with self._state.lock:
            entry = self._state.failed.get(job_id)
            return entry[1] if entry else None

    async def page(
        self, *, cursor: str = "", limit: int = 50, queue: str | None = None, fingerprint: str | None = None
    ) -> tuple[Sequence[FailedRecord], str]:
        with self._state.lock:
            records = (
                (number, record)
                for number, record in reversed(self._state.failed.values())
                if (queue is None or record.queue == queue)
                and (fingerprint is None or record.fingerprint == fingerprint)
            )
            return paging.newest_first(records, cursor, limit)

    async def count(self, *, queue: str | None = None) -> int:
        with self._state.lock:
            if queue is None:
                return len(self._state.failed)
            return sum(record.queue == queue for _, record in self._state.failed.values())

    async def groups(self, *, limit: int = 50) -> Sequence[FailureGroup]:
        """The greatest groups first."""
        groups: dict[str, FailureGroup] = {}
        with self._state.lock:
            for _, record in self._state.failed.values():
                groups[record.fingerprint] = _grown(groups.get(record.fingerprint), record)
        return sorted(groups.values(), key=lambda group: (-group.count, -group.last_at))[:limit]

    async def forget(self, job_id: str) -> bool:
        with self._state.lock:
            return self._state.failed.pop(job_id, None) is not None

    async def forget_all(self, *, queue: str | None = None, older_than: float | None = None) -> int:
        """`older_than`: only records of at least that age, in seconds."""
        state = self._state
        with state.lock:
            latest = float("inf") if older_than is None else state.now() - older_than
            gone = [
                record.id
                for _, record in state.failed.values()
                if record.failed_at <= latest and (queue is None or record.queue == queue)
            ]
            for job_id in gone:
                del state.failed[job_id]
            return len(gone)

    async def retry(self, job_id: str) -> Pushed | None:
        state = self._state
        with state.lock:
            entry = state.failed.get(job_id)
            if entry is None:
                return None
            record = entry[1]
            pushed = push_again(state, record.wire, record.id, record.queue, record.max_attempts, state.now())
            if pushed.holder is None:
                del state.failed[job_id]
            return pushed


def _grown(group: FailureGroup | None, record: FailedRecord) -> FailureGroup:
    """The group with one more record, which is its latest."""
    first_at = group.first_at if group else record.failed_at
    count = group.count + 1 if group else 1
    return FailureGroup(
        record.fingerprint, record.name, record.kind, record.error, count, first_at, record.failed_at
    )
