"""Progress of batches (see lua/lib/batch.lua)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nimbusq.driver import Added, BatchRecord, BatchState, BatchUpdate, NewBatch
from nimbusq.envelope import Envelope
from nimbusq.errors import BatchNotFound, InvalidOption
from nimbusq_redis.batch_state import read_batch
from nimbusq_redis.cursors import scan
from nimbusq_redis.entries import entry
from nimbusq_redis.link import Link
from nimbusq_redis.pushes import read_pushed
from nimbusq_redis.refs import ref, unref


class RedisBatchStore:
    """`nimbusq.driver.BatchStore` in Redis."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def create(self, batch: NewBatch) -> None:
        callbacks = [entry(callback) for callback in (batch.then, batch.finally_) if callback]
        await self._link.run(
            "batch_create",
            batch.id,
            batch.name,
            "1" if batch.cancel_on_failure else "",
            json.dumps(dict(batch.meta)),
            batch.catch.to_wire() if batch.catch else "",
            int(batch.then is not None),
            int(batch.finally_ is not None),
            *(part for callback in callbacks for part in callback),
        )

    async def add(self, batch_id: str, envelopes: Sequence[Envelope], *, offset: int | None = None) -> Added:
        members = [part for e in envelopes for part in (ref(e.member_id), *entry(e))]
        answer, *rest = await self._link.run(
            "batch_add", batch_id, "" if offset is None else offset, *members
        )
        match answer:
            case b"added":
                return Added(rest[0], read_pushed(envelopes, rest[1:]))
            case b"known":
                return Added(rest[0])
            case b"gap":
                raise InvalidOption(
                    f"batch {batch_id} has {rest[0]} members of its producer, not {offset}: "
                    f"add those from {rest[0]} on first."
                )
            case b"finished":
                raise InvalidOption(f"batch {batch_id} has finished: nothing can be added to it.")
            case b"sealed":
                raise InvalidOption(f"batch {batch_id} is sealed: only its own jobs can add to it.")
            case _:
                raise _not_found(batch_id)

    async def seal(self, batch_id: str) -> BatchUpdate:
        return await self._change(batch_id, "seal")

    async def record(self, record: BatchRecord) -> BatchUpdate:
        error = (record.error or "").encode("utf-8", "replace")
        failed = "1" if record.failed else ""
        return await self._change(record.batch_id, "record", ref(record.member), failed, error)

    async def cancel(self, batch_id: str) -> BatchUpdate:
        """Cancelling seals: a batch that its producer left open can be ended so."""
        return await self._change(batch_id, "cancel")

    async def find(self, batch_id: str) -> BatchState | None:
        reply = await self._link.run("batch_change", batch_id, "find")
        return read_batch(reply[2]) if reply else None

    async def members(
        self, batch_id: str, *, cursor: str = "", limit: int = 500
    ) -> tuple[Sequence[str], str]:
        """In no order; one may be shown twice where members come or go meanwhile."""
        if await self.find(batch_id) is None:
            raise _not_found(batch_id)
        found: list[str] = []
        async for members, portion, skip in scan(self._link, "SSCAN", f"batch:{batch_id}:pending", cursor):
            room = limit - len(found)
            found += (unref(member) for member in members[skip : skip + room])
            if len(members) - skip > room:
                return found, f"{portion}:{skip + room}"
        return found, ""

    async def list(self, *, cursor: str = "", limit: int = 50) -> tuple[Sequence[BatchState], str]:
        following, *states = await self._link.run("batch_list", cursor, limit)
        return [read_batch(state) for state in states], following.decode()

    async def _change(self, batch_id: str, *change: str | bytes) -> BatchUpdate:
        reply = await self._link.run("batch_change", batch_id, *change)
        if not reply:
            raise _not_found(batch_id)
        counted, finished, state = reply
        return BatchUpdate(read_batch(state), counted == b"1", finished == b"1")


def _not_found(batch_id: str) -> BatchNotFound:
    return BatchNotFound(
        f"batch {batch_id} is unknown, or its record has expired (7 days after its last update)"
    )
