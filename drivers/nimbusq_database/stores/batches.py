"""Batches as their producers and watchers see them; settlements count in `nimbusq_database.batches`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from nimbusq.driver import Added, BatchRecord, BatchState, BatchUpdate, NewBatch, Pushed
from nimbusq.envelope import Envelope
from nimbusq.errors import InvalidOption
from nimbusq_database import batches
from nimbusq_database.batches import Batch, not_found, to_state
from nimbusq_database.database import Database
from nimbusq_database.paging import LAST, cut, number
from nimbusq_database.push import push
from nimbusq_database.transaction import Transaction


class DatabaseBatches:
    """`nimbusq.driver.BatchStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, batch: NewBatch) -> None:
        async def body(tx: Transaction) -> None:
            await tx.insert("batch_create", [_columns(batch)])

        await self._database.transact(body)

    async def add(self, batch_id: str, envelopes: Sequence[Envelope], *, offset: int | None = None) -> Added:
        async def body(tx: Transaction) -> Added:
            batch, now = await batches.lock_one(tx, batch_id)
            if offset is not None and offset < batch.mark:
                return Added(batch.mark)
            _check_open(batch, by_producer=offset is not None)
            if offset is not None and offset > batch.mark:
                raise InvalidOption(
                    f"batch {batch_id} has {batch.mark} members of its producer, not {offset}: "
                    f"add those from {batch.mark} on first."
                )
            pushed, new = await _add(tx, batch_id, envelopes)
            state = replace(batch.state, total=batch.state.total + new, pending=batch.state.pending + new)
            mark = batch.mark + (len(envelopes) if offset is not None else 0)
            await batches.write(tx, replace(batch, state=state, mark=mark), now)
            return Added(mark, pushed)

        return await self._database.transact(body)

    async def seal(self, batch_id: str) -> BatchUpdate:
        async def body(tx: Transaction) -> BatchUpdate:
            batch, now = await batches.lock_one(tx, batch_id)
            if batch.state.sealed:
                return BatchUpdate(batch.state)
            return await batches.write(tx, replace(batch, state=replace(batch.state, sealed=True)), now)

        return await self._database.transact(body)

    async def record(self, record: BatchRecord) -> BatchUpdate:
        async def body(tx: Transaction) -> BatchUpdate:
            (update,) = await batches.record(tx, [record])
            if update is None:
                raise not_found(record.batch_id)
            return update

        return await self._database.transact(body)

    async def cancel(self, batch_id: str) -> BatchUpdate:
        """Cancelling seals: a batch that its producer left open can be ended so."""

        async def body(tx: Transaction) -> BatchUpdate:
            batch, now = await batches.lock_one(tx, batch_id)
            if batch.state.finished or (batch.state.cancelled and batch.state.sealed):
                return BatchUpdate(batch.state)
            state = replace(batch.state, cancelled=True, sealed=True)
            return await batches.write(tx, replace(batch, state=state), now)

        return await self._database.transact(body)

    async def find(self, batch_id: str) -> BatchState | None:
        async def body(tx: Transaction) -> BatchState | None:
            row = await tx.one("batches_find", ids=[batch_id])
            return to_state(row) if row else None

        return await self._database.read(body)

    async def members(
        self, batch_id: str, *, cursor: str = "", limit: int = 500
    ) -> tuple[Sequence[str], str]:
        async def body(tx: Transaction) -> tuple[Sequence[str], str]:
            if not await tx.fetch("batches_find", ids=[batch_id]):
                raise not_found(batch_id)
            rows = await tx.fetch("members_page", batch_id=batch_id, after=cursor, limit=limit + 1)
            page, following = cut(rows, limit, "member_id")
            return [row["member_id"] for row in page], following

        return await self._database.read(body)

    async def list(self, *, cursor: str = "", limit: int = 50) -> tuple[Sequence[BatchState], str]:
        async def body(tx: Transaction) -> tuple[Sequence[BatchState], str]:
            rows = await tx.fetch("batches_page", before=number(cursor, LAST), limit=limit + 1)
            page, following = cut(rows, limit)
            return [to_state(row) for row in page], following

        return await self._database.read(body)


def _columns(batch: NewBatch) -> dict[str, object]:
    return {
        "id": batch.id,
        "name": batch.name,
        "then_wire": batch.then.to_wire() if batch.then else None,
        "catch_wire": batch.catch.to_wire() if batch.catch else None,
        "finally_wire": batch.finally_.to_wire() if batch.finally_ else None,
        "cancel_on_failure": int(batch.cancel_on_failure),
        "meta": json.dumps(dict(batch.meta)),
    }


def _check_open(batch: Batch, *, by_producer: bool) -> None:
    if batch.state.finished:
        raise InvalidOption(f"batch {batch.state.id} has finished: nothing can be added to it.")
    if by_producer and batch.state.sealed:
        raise InvalidOption(f"batch {batch.state.id} is sealed: only its own jobs can add to it.")


async def _add(tx: Transaction, batch_id: str, envelopes: Sequence[Envelope]) -> tuple[Sequence[Pushed], int]:
    """Push the members that the batch never had; the answers for all, and how many are new."""
    ids = [envelope.member_id for envelope in envelopes]
    known = (
        {row["member_id"] for row in await tx.fetch("members_known", batch_id=batch_id, ids=ids)}
        if ids
        else set()
    )
    fresh = [envelope for envelope in envelopes if envelope.member_id not in known]
    pushed = {one.id: one for one in await push(tx, fresh)}
    members = sorted({envelope.member_id for envelope in fresh if pushed[envelope.id].holder is None})
    if members:
        await tx.execute("members_add", batch_id=batch_id, ids=members)
    return [pushed.get(envelope.id, Pushed(envelope.id)) for envelope in envelopes], len(members)
