"""Batches: members are pushed and counted here; the last one to end pushes the callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nimbusq.driver import Added, BatchRecord, BatchState, BatchUpdate, NewBatch, Pushed
from nimbusq.envelope import Envelope
from nimbusq.errors import BatchNotFound, InvalidOption
from nimbusq_sync import paging
from nimbusq_sync.batch import Batch
from nimbusq_sync.pushing import as_stored, push
from nimbusq_sync.state import State

_KEPT: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Counted:
    """A record's effect: on which batch, and whether it was the member's first."""

    batch: Batch
    new: bool


def count(state: State, record: BatchRecord, now: float) -> Counted | None:
    """Count a member; None where the batch is unknown (any more)."""
    batch = state.batches.get(record.batch_id, now)
    if batch is None:
        return None
    new = batch.count(record)
    if new:
        _touch(state, batch, now)
    return Counted(batch, new)


def finish_if_due(state: State, counted: Counted, now: float) -> BatchUpdate:
    """End the batch if its last member has ended: once, with its callbacks."""
    batch = counted.batch
    finishes = batch.due_to_finish
    if finishes:
        batch.finished_at = now
        _touch(state, batch, now)
        if batch.new.then and batch.failed == 0:
            push(state, batch.new.then, now)
        if batch.new.finally_:
            push(state, batch.new.finally_, now)
    return BatchUpdate(batch.view(), counted.new, finishes)


def _touch(state: State, batch: Batch, now: float) -> None:
    batch.updated_at = now
    state.batches.put(batch.new.id, batch, now + _KEPT, now)


class MemoryBatches:
    """`nimbusq.driver.BatchStore` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def create(self, batch: NewBatch) -> None:
        state = self._state
        with state.lock:
            now = state.now()
            if state.batches.get(batch.id, now) is None:
                _touch(state, Batch(batch, state.number(), now, now), now)

    async def add(self, batch_id: str, envelopes: Sequence[Envelope], *, offset: int | None = None) -> Added:
        stored = [as_stored(envelope) for envelope in envelopes]
        state = self._state
        with state.lock:
            now = state.now()
            batch = self._known(batch_id, now)
            if offset is not None and offset < batch.mark:
                return Added(batch.mark)
            _check_open(batch, by_producer=offset is not None)
            if offset is not None and offset > batch.mark:
                raise InvalidOption(
                    f"batch {batch_id} has {batch.mark} members of its producer, not {offset}: "
                    f"add those from {batch.mark} on first."
                )
            pushed = [self._add_one(batch, envelope, now) for envelope in stored]
            if offset is not None:
                batch.mark += len(stored)
            _touch(state, batch, now)
            return Added(batch.mark, pushed)

    async def seal(self, batch_id: str) -> BatchUpdate:
        state = self._state
        with state.lock:
            now = state.now()
            batch = self._known(batch_id, now)
            if not batch.sealed:
                batch.sealed = True
                _touch(state, batch, now)
            return finish_if_due(state, Counted(batch, True), now)

    async def record(self, record: BatchRecord) -> BatchUpdate:
        state = self._state
        with state.lock:
            now = state.now()
            counted = count(state, record, now)
            if counted is None:
                raise _not_found(record.batch_id)
            return finish_if_due(state, counted, now)

    async def cancel(self, batch_id: str) -> BatchUpdate:
        """Cancelling seals: a batch that its producer left open can be ended so."""
        state = self._state
        with state.lock:
            now = state.now()
            batch = self._known(batch_id, now)
            if batch.finished_at is None and not batch.cancelled:
                batch.cancelled = batch.sealed = True
                _touch(state, batch, now)
            return finish_if_due(state, Counted(batch, True), now)

    async def find(self, batch_id: str) -> BatchState | None:
        state = self._state
        with state.lock:
            batch = state.batches.get(batch_id, state.now())
            return batch.view() if batch else None

    async def members(
        self, batch_id: str, *, cursor: str = "", limit: int = 500
    ) -> tuple[Sequence[str], str]:
        state = self._state
        with state.lock:
            pending = sorted(self._known(batch_id, state.now()).pending)
        rest = [member for member in pending if member > cursor]
        page = rest[:limit]
        return page, page[-1] if len(rest) > limit else ""

    async def list(self, *, cursor: str = "", limit: int = 50) -> tuple[Sequence[BatchState], str]:
        state = self._state
        with state.lock:
            batches = ((batch.number, batch) for batch in state.batches.values(state.now()))
            page, following = paging.newest_first(batches, cursor, limit)
            return [batch.view() for batch in page], following

    def _known(self, batch_id: str, now: float) -> Batch:
        batch = self._state.batches.get(batch_id, now)
        if batch is None:
            raise _not_found(batch_id)
        return batch

    def _add_one(self, batch: Batch, envelope: Envelope, now: float) -> Pushed:
        """Push a member, unless the batch has or had it."""
        if envelope.member_id in batch.known:
            return Pushed(envelope.id)
        pushed = push(self._state, envelope, now)
        if pushed.holder is None:
            batch.admit(envelope.member_id)
        return pushed


def _not_found(batch_id: str) -> BatchNotFound:
    return BatchNotFound(
        f"batch {batch_id} is unknown, or its record has expired (7 days after its last update)"
    )


def _check_open(batch: Batch, *, by_producer: bool) -> None:
    if batch.finished_at is not None:
        raise InvalidOption(f"batch {batch.new.id} has finished: nothing can be added to it.")
    if by_producer and batch.sealed:
        raise InvalidOption(f"batch {batch.new.id} is sealed: only its own jobs can add to it.")
