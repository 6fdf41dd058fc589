"""Schedules: a tick moves forward and pushes in one step, whoever sees it first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nimbusq.driver import Pushed, ScheduleState
from nimbusq.envelope import Envelope
from nimbusq_sync.pushing import as_stored, push
from nimbusq_sync.state import State


class MemorySchedules:
    """`nimbusq.driver.Schedules` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def register(self, name: str, spec: Mapping[str, Any]) -> ScheduleState:
        state = self._state
        with state.lock:
            known = state.schedules.get(name) or ScheduleState(name=name, last_tick=state.now())
            state.schedules[name] = replace(known, spec=dict(spec))
            return state.schedules[name]

    async def fire(self, name: str, tick: float, envelope: Envelope) -> Pushed | None:
        stored = as_stored(envelope)
        state = self._state
        with state.lock:
            schedule = state.schedules.get(name)
            if schedule is None or schedule.paused:
                return None
            if schedule.last_tick is not None and tick <= schedule.last_tick:
                return None
            state.schedules[name] = replace(schedule, last_tick=tick)
            return push(state, stored, state.now())

    async def list(self) -> Sequence[ScheduleState]:
        with self._state.lock:
            return sorted(self._state.schedules.values(), key=lambda schedule: schedule.name)

    async def pause(self, name: str, paused: bool) -> bool:
        state = self._state
        with state.lock:
            schedule = state.schedules.get(name)
            if schedule is None:
                return False
            resumed = schedule.paused and not paused
            last_tick = max(schedule.last_tick or 0.0, state.now()) if resumed else schedule.last_tick
            state.schedules[name] = replace(schedule, paused=paused, last_tick=last_tick)
            return True

    async def forget(self, name: str) -> bool:
        with self._state.lock:
            return self._state.schedules.pop(name, None) is not None

    async def now(self) -> float:
        with self._state.lock:
            return self._state.now()
