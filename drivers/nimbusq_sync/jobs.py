"""Looking at single jobs, and cancelling and pausing them."""

from __future__ import annotations

from collections.abc import Sequence

from nimbusq.driver import Cancel, Claim, Ending, JobState, JobView
from nimbusq.envelope import decode, digest
from nimbusq_sync import paging
from nimbusq_sync.claiming import lease, live_holders
from nimbusq_sync.results import ended_as
from nimbusq_sync.row import Row
from nimbusq_sync.state import State


class MemoryJobs:
    """`nimbusq.driver.Jobs` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def get(self, job_id: str) -> JobView | None:
        state = self._state
        with state.lock:
            row = state.rows.get(job_id)
            return _view(row, state.now()) if row else _ended_view(state, job_id)

    async def list(
        self, *, queue: str | None = None, state: JobState | None = None, cursor: str = "", limit: int = 50
    ) -> tuple[Sequence[JobView], str]:
        """In the order of arrival."""
        with self._state.lock:
            now = self._state.now()
            rows = (
                (row.number, row)
                for row in self._state.rows.values()
                if (queue is None or row.queue == queue) and (state is None or _state_of(row, now) == state)
            )
            page, following = paging.oldest_first(rows, cursor, limit)
            return [_view(row, now) for row in page], following

    async def cancel(self, job_id: str, *, token: str, lease: float) -> Claim | Cancel:
        state = self._state
        with state.lock:
            row = state.rows.get(job_id)
            if row is None:
                return _cancel_of_the_gone(state, job_id)
            if row.token == token and row.claim:
                return row.claim
            if row.token is not None:
                row.cancel_asked = True
                return Cancel.ASKED
            return _take(state, row, token, lease)

    async def pause(self, job_id: str) -> bool:
        with self._state.lock:
            row = self._state.rows.get(job_id)
            if row is None or row.token is not None:
                return False
            _leave_line(row)
            row.paused = True
            return True

    async def resume(self, job_id: str) -> bool:
        state = self._state
        with state.lock:
            row = state.rows.get(job_id)
            if row is None or not row.paused:
                return False
            row.paused = False
            state.line_up(row, state.now())
            return True

    async def pause_queue(self, queue: str) -> bool:
        with self._state.lock:
            known = self._state.queue(queue)
            changed = not known.paused
            known.paused = True
            return changed

    async def resume_queue(self, queue: str) -> bool:
        with self._state.lock:
            known = self._state.queue(queue)
            changed = known.paused
            known.paused = False
            self._state.bells.ring_queue(queue)
            return changed

    async def paused_queues(self) -> Sequence[str]:
        with self._state.lock:
            return sorted(name for name, queue in self._state.queues.items() if queue.paused)

    async def holders(self, name: str, overlap_key: str) -> Sequence[str]:
        with self._state.lock:
            return live_holders(self._state, digest(name, overlap_key), self._state.now())

    async def unique_holder(self, name: str, key: str) -> str | None:
        with self._state.lock:
            return self._state.unique.get(digest(name, key))


def _take(state: State, row: Row, token: str, seconds: float) -> Claim:
    """Hand a queued job, wherever it stands, to whoever cancels it."""
    now = state.now()
    _leave_line(row)
    row.paused = False
    row.ending = Ending.CANCELLED
    return lease(state, row, token, seconds, now)


def _leave_line(row: Row) -> None:
    if row.agenda is not None:
        row.agenda.discard(row)


def _cancel_of_the_gone(state: State, job_id: str) -> Cancel:
    ended = ended_as(state, job_id)
    known = ended is not None and ended.state != "unknown"
    known = known or state.tombstones.token(job_id, state.now()) is not None
    return Cancel.ENDED if known else Cancel.UNKNOWN


def _state_of(row: Row, now: float) -> JobState:
    if row.token is not None:
        return "leased"
    if row.paused:
        return "paused"
    return "delayed" if row.run_at > now else "ready"


def _view(row: Row, now: float) -> JobView:
    return JobView(
        id=row.id,
        queue=row.queue,
        name=row.header.name,
        state=_state_of(row, now),
        attempt=row.attempt,
        releases=row.releases,
        reclaims=row.reclaims,
        run_at=row.run_at,
        lease_until=row.lease_until if row.token is not None else None,
        envelope=row.envelope,
        error=row.error,
    )


def _ended_view(state: State, job_id: str) -> JobView | None:
    if failure := state.failed.get(job_id):
        record = failure[1]
        return JobView(
            id=record.id,
            queue=record.queue,
            name=record.name,
            state="failed",
            attempt=record.attempts,
            envelope=decode(record.wire),
            error=record.error,
        )
    if entry := state.history.get(job_id):
        row = entry[1]
        return JobView(
            id=row.id, queue=row.queue, name=row.name, state=row.state, attempt=row.attempt, error=row.error
        )
    return None
