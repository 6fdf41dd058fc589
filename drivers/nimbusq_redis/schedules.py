"""Ticks that fire once, whatever the number of schedulers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nimbusq.driver import Pushed, ScheduleState
from nimbusq.envelope import Envelope
from nimbusq_redis.entries import entry
from nimbusq_redis.link import Link
from nimbusq_redis.refs import unref


class RedisSchedules:
    """`nimbusq.driver.Schedules` in Redis."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def register(self, name: str, spec: Mapping[str, Any]) -> ScheduleState:
        text = json.dumps(dict(spec))
        last_tick, paused = await self._link.run("schedule_register", name, text)
        return _state(name.encode(), text.encode(), last_tick, paused)

    async def fire(self, name: str, tick: float, envelope: Envelope) -> Pushed | None:
        holder = await self._link.run("schedule_fire", name, round(tick * 1e6), *entry(envelope))
        if holder is None:
            return None
        return Pushed(envelope.id, unref(holder) if holder else None)

    async def list(self) -> Sequence[ScheduleState]:
        fields = await self._link.run("schedule_list")
        states = [_state(*fields[at : at + 4]) for at in range(0, len(fields), 4)]
        return sorted(states, key=lambda state: state.name)

    async def pause(self, name: str, paused: bool) -> bool:
        return bool(await self._link.run("schedule_change", name, "pause" if paused else "resume"))

    async def forget(self, name: str) -> bool:
        return bool(await self._link.run("schedule_change", name, "forget"))

    async def now(self) -> float:
        return float(await self._link.run("now")) / 1e6


def _state(name: bytes, spec: bytes, last_tick: bytes, paused: bytes) -> ScheduleState:
    return ScheduleState(
        name=name.decode(),
        last_tick=int(last_tick) / 1e6 if last_tick else None,
        paused=paused == b"1",
        spec=json.loads(spec),
    )
