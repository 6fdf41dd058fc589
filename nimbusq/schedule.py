"""The scheduler: jobs at times. N processes may run one, and each tick is queued once."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Literal

from nimbusq.building import Asked, build
from nimbusq.callbacks import CallbackJob, taken
from nimbusq.cron import Cron, Every, Timetable
from nimbusq.driver import Locker, Pushed, Schedules, ScheduleState
from nimbusq.envelope import Envelope, Unique
from nimbusq.errors import InvalidOption, JobNotFound, StoreError
from nimbusq.ids import derived_id, new_id
from nimbusq.jobs import Job
from nimbusq.manager import Manager, get_manager
from nimbusq.names import check_name
from nimbusq.retry import seconds

log = logging.getLogger("nimbusq.scheduler")

CatchUp = Literal["none", "last", "all"]

MISFIRE_GRACE: Final = 300.0
"""A running scheduler that is late by less than this many seconds fires every tick; above it they count as missed."""
MOST_CAUGHT_UP: Final = 100
LOOK_AGAIN: Final = 30.0
"""Seconds after which the store's clock is read again."""
RESOLUTION: Final = 1e-6
"""Seconds: ticks are told apart to the microsecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One schedule of this program.

    catch_up: what to do about ticks missed while no scheduler ran: "none", the "last", or "all" (at most 100).
    overlap: "allow", or "skip" a tick while the job of an earlier one is still active. jitter: up to that many
    seconds later, at random.
    """

    name: str
    timetable: Timetable
    job: Job
    asked: Asked
    catch_up: CatchUp = "last"
    overlap: Literal["allow", "skip"] = "allow"
    jitter: float = 0.0

    def missed(self, last_tick: float, now: float) -> list[float]:
        """The ticks up to `now` that the policy wants fired, given the last that was."""
        most = {"none": 0, "last": 1, "all": MOST_CAUGHT_UP}[self.catch_up]
        late = itertools.takewhile(lambda tick: tick > last_tick, self.timetable.before(now + RESOLUTION))
        return list(itertools.islice(late, most))[::-1]

    def due(self, since: float, now: float) -> list[float]:
        """The ticks up to `now` that a running scheduler fires, when it last looked at `since`."""
        if now - since > MISFIRE_GRACE:
            return self.missed(since, now)
        return list(itertools.takewhile(lambda tick: tick <= now, self.timetable.after(since)))

    def spec(self) -> dict[str, Any]:
        """What the store keeps for people to see."""
        return {
            **self.timetable.describe(),
            "job": self.job.options.name,
            "queue": self.asked.queue or self.job.options.queue,
            "catch_up": self.catch_up,
            "overlap": self.overlap,
            "jitter": self.jitter,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A schedule with its stored state and its next runs (epoch seconds)."""

    name: str
    spec: dict[str, Any]
    last_tick: float | None
    paused: bool
    next_runs: tuple[float, ...]


class Scheduler:
    """``scheduler.cron("0 3 * * *", Report(), tz="Europe/Berlin")``, then ``await scheduler.run()``.

    Any number of processes may run the same schedules: a tick is fired in one step of the store, which moves the
    schedule's last tick forward and pushes the job, so every tick is queued once. tz is the default zone.
    """

    def __init__(self, manager: Manager | None = None, *, tz: str = "UTC") -> None:
        self._manager = manager
        self._tz = tz
        self._entries: dict[str, Entry] = {}
        self._stop = asyncio.Event()

    @property
    def manager(self) -> Manager:
        return self._manager or get_manager()

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    def cron(self, expression: str, job: CallbackJob, *, tz: str | None = None, **options: Any) -> Entry:
        """By a cron expression (or @daily, @hourly …). Options: name, catch_up, overlap, jitter; see `Entry`."""
        return self._add(Cron(expression, tz or self._tz), job, **options)

    def every(self, interval: float | timedelta, job: CallbackJob, **options: Any) -> Entry:
        """Every `interval` seconds, exactly. Options: name, catch_up, overlap, jitter; see `Entry`."""
        return self._add(Every(seconds(interval, "every", positive=True)), job, **options)

    def _add(
        self,
        timetable: Timetable,
        item: CallbackJob,
        *,
        name: str | None = None,
        catch_up: CatchUp = "last",
        overlap: Literal["allow", "skip"] = "allow",
        jitter: float | timedelta = 0.0,
    ) -> Entry:
        job, asked = taken(item, "a scheduled job", may_be_unique=True)
        name = check_name("schedule", name or job.options.name)
        if name in self._entries:
            raise InvalidOption(f"two schedules are called {name!r}: give one of them a name.")
        if catch_up not in ("none", "last", "all") or overlap not in ("allow", "skip"):
            raise InvalidOption("catch_up is 'none', 'last' or 'all'; overlap is 'allow' or 'skip'.")
        entry = Entry(
            name=name,
            timetable=timetable,
            job=job,
            asked=asked,
            catch_up=catch_up,
            overlap=overlap,
            jitter=seconds(jitter, "jitter"),
        )
        self._entries[name] = entry
        return entry

    # --- running -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fire ticks until `stop`. An outage of the store is waited out; see `MISFIRE_GRACE` for its ticks."""
        self._stop.clear()
        evaluated: dict[str, float] | None = None
        while not self._stop.is_set():
            try:
                evaluated = await (self._start() if evaluated is None else self._round(evaluated))
            except StoreError as error:
                log.warning("the schedules cannot be fired: %s", error)
                await self._pause(1.0)

    def stop(self) -> None:
        self._stop.set()

    async def aclose(self) -> None:
        """The same, for those who close what they opened."""
        self.stop()

    async def _start(self) -> dict[str, float]:
        """Register the schedules and fire what was missed; up to when each has been evaluated."""
        store = self._store()
        evaluated = {}
        for entry in self.entries:
            state: ScheduleState = await store.register(entry.name, entry.spec())
            now = await store.now()
            for tick in entry.missed(now if state.last_tick is None else state.last_tick, now):
                await self._try(entry, tick)
            evaluated[entry.name] = now
        return evaluated

    async def _round(self, evaluated: dict[str, float]) -> dict[str, float]:
        """Fire what became due since `evaluated`, then wait for the next tick."""
        now = await self._store().now()
        for entry in self.entries:
            for tick in entry.due(evaluated[entry.name], now):
                await self._try(entry, tick)
        upcoming = [next(entry.timetable.after(now), math.inf) for entry in self.entries]
        wait = min(upcoming, default=math.inf) - await self._store().now()
        await self._pause(min(LOOK_AGAIN, max(0.001, wait)))
        return dict.fromkeys(evaluated, now)

    async def _try(self, entry: Entry, tick: float) -> None:
        """Fire, so that one job whose hooks raise does not stop the other schedules."""
        try:
            await self.fire(entry, tick)
        except StoreError:
            raise
        except Exception:
            log.exception("schedule %s: the tick at %s could not be queued", entry.name, tick)

    async def _pause(self, wait: float) -> None:
        try:
            async with asyncio.timeout(wait):
                await self._stop.wait()
        except TimeoutError:
            pass

    async def fire(self, entry: Entry, tick: float) -> Pushed | None:
        """Queue the job of one tick, if no scheduler has; None when one had, or the schedule is paused."""
        envelope = self._envelope(entry, derived_id(f"schedule:{entry.name}", f"{tick:.6f}"))
        pushed = await self._store().fire(entry.name, tick, envelope)
        if pushed is not None:
            await self._told(envelope, pushed)
        return pushed

    def _envelope(self, entry: Entry, job_id: str) -> Envelope:
        envelope = build(entry.job, entry.asked, self.manager, job_id=job_id)
        if entry.overlap == "skip":
            envelope = replace(envelope, unique=Unique(key=f"schedule:{entry.name}"))
        if entry.jitter:
            envelope = replace(envelope, delay=envelope.delay + random.uniform(0, entry.jitter))  # noqa: S311
        return envelope

    async def _told(self, envelope: Envelope, pushed: Pushed) -> None:
        if pushed.holder is not None:
            log.info("schedule tick of %s skipped: job %s is still active", envelope.name, pushed.holder)
            return
        await self.manager.observers.tell("dispatched", envelope)
        if self.manager.adapter.capabilities.inline:
            await self.manager.run_inline()

    # --- control -----------------------------------------------------------------------------------------------

    async def run_now(self, name: str) -> str:
        """Queue the schedule's job at once, beside its ticks; the job's id."""
        entry = self._entry(name)
        envelope = self._envelope(entry, new_id())
        sent = await self.manager.push([envelope])
        return sent.answers[0].holder or envelope.id

    async def pause(self, name: str) -> None:
        """No ticks until `resume`. Raises JobNotFound for an unknown schedule."""
        await self._set_paused(name, True)

    async def resume(self, name: str) -> None:
        await self._set_paused(name, False)

    async def _set_paused(self, name: str, paused: bool) -> None:
        if not await self._store().pause(name, paused):
            raise JobNotFound(f"no schedule is called {name!r} in the store; has its scheduler run once?")

    async def list(self, runs: int = 5) -> list[Listed]:
        """This program's schedules with their next runs, and those that only the store knows."""
        store = self._store()
        now = await store.now()
        states = {state.name: state for state in await store.list()}
        own = [
            Listed(
                name=entry.name,
                spec=entry.spec(),
                last_tick=states[entry.name].last_tick if entry.name in states else None,
                paused=entry.name in states and states[entry.name].paused,
                next_runs=tuple(itertools.islice(entry.timetable.after(now), runs)),
            )
            for entry in self.entries
        ]
        others = [state for name, state in states.items() if name not in self._entries]
        return own + [
            Listed(name=s.name, spec=dict(s.spec), last_tick=s.last_tick, paused=s.paused, next_runs=())
            for s in others
        ]

    def _entry(self, name: str) -> Entry:
        if name not in self._entries:
            raise JobNotFound(
                f"no schedule is called {name!r}; there are: {', '.join(self._entries) or 'none'}."
            )
        return self._entries[name]

    def _store(self) -> Schedules:
        store: Schedules = self.manager.require("schedules", "schedules")
        return store


class ScheduleLocker:
    """For other people's schedulers: a tick lock over the driver's Locker (the seed's ScheduleLocker)."""

    def __init__(self, locker: Locker) -> None:
        self._locker = locker

    async def try_lock(self, key: str, ttl: float) -> Callable[[], Awaitable[bool]] | None:
        """Take `key` for `ttl` seconds; a function that unlocks it, or None while another process has it."""
        token = await self._locker.acquire(f"schedule:{key}", ttl)
        if token is None:
            return None

        async def unlock() -> bool:
            return await self._locker.release(f"schedule:{key}", token)

        return unlock
