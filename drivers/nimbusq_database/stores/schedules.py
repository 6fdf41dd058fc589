"""Schedules: a tick moves forward and pushes in one step, whoever sees it first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nimbusq.driver import Pushed, ScheduleState
from nimbusq.envelope import Envelope
from nimbusq_database.client import Row
from nimbusq_database.database import Database
from nimbusq_database.push import push
from nimbusq_database.transaction import Transaction


class DatabaseSchedules:
    """`nimbusq.driver.Schedules`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, name: str, spec: Mapping[str, Any]) -> ScheduleState:
        async def body(tx: Transaction) -> ScheduleState:
            await tx.execute("schedule_register", name=name, spec=json.dumps(dict(spec)))
            row = await tx.one("schedule_get", name=name)
            assert row is not None, "it was just stored"
            return _state(row)

        return await self._database.transact(body)

    async def fire(self, name: str, tick: float, envelope: Envelope) -> Pushed | None:
        async def body(tx: Transaction) -> Pushed | None:
            if not await tx.execute("schedule_fire", name=name, tick=tick):
                return None
            (pushed,) = await push(tx, [envelope])
            return pushed

        return await self._database.transact(body)

    async def list(self) -> Sequence[ScheduleState]:
        async def body(tx: Transaction) -> Sequence[ScheduleState]:
            return [_state(row) for row in await tx.fetch("schedules_list")]

        return await self._database.read(body)

    async def pause(self, name: str, paused: bool) -> bool:
        async def body(tx: Transaction) -> bool:
            known = await tx.one("schedule_get", name=name)
            await tx.execute("schedule_pause", name=name, paused=int(paused))
            return known is not None

        return await self._database.transact(body)

    async def forget(self, name: str) -> bool:
        async def body(tx: Transaction) -> bool:
            return bool(await tx.execute("schedule_forget", name=name))

        return await self._database.transact(body)

    async def now(self) -> float:
        return await self._database.read(Transaction.now)


def _state(row: Row) -> ScheduleState:
    return ScheduleState(
        name=row["name"], last_tick=row["last_tick"], paused=bool(row["paused"]), spec=json.loads(row["spec"])
    )
