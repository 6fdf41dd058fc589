"""Schedules: each tick queued once, whatever the number of schedulers and whatever was missed."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nimbusq import Job, Manager, Scheduler, Worker, dispatch, job
from nimbusq import schedule as schedules
from nimbusq.cron import Every
from nimbusq.errors import InvalidJob, InvalidName, InvalidOption, JobNotFound, UnsupportedByDriver
from nimbusq.ids import derived_id
from nimbusq.schedule import ScheduleLocker
from nimbusq.testing.faults import FaultPlan, Faults, FaultyAdapter
from tests.coordination.place import Advance, Place, workers
from tests.coordination.programs import shop


@asynccontextmanager
async def running(scheduler: Scheduler) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        group.create_task(scheduler.run())
        try:
            yield
        finally:
            scheduler.stop()


async def pending(manager: Manager) -> int:
    depth = await manager.depth()
    assert depth.pending is not None
    return depth.pending


async def reaches(manager: Manager, count: int) -> None:
    """As many jobs wait as that, within 10 s, and no more a moment later."""
    async with asyncio.timeout(10):
        while await pending(manager) < count:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert await pending(manager) == count


def minutely(manager: Manager, **options: Any) -> Scheduler:
    scheduler = Scheduler(manager)
    scheduler.cron("* * * * *", dispatch(shop.step, "minute"), name="minutely", **options)
    return scheduler


async def queued_ticks(manager: Manager, name: str, interval: float) -> dict[float, float]:
    """The instants of the queued jobs, from their ids, looking back from the last tick; and when they were queued."""
    jobs = manager.require("jobs", "")
    queued: dict[str, float] = {}
    cursor, more = "", True
    while more:
        views, cursor = await jobs.list(cursor=cursor, limit=200)
        queued |= {view.id: view.run_at for view in views}
        more = bool(cursor)
    (state,) = [state for state in await manager.require("schedules", "").list() if state.name == name]
    ticks = itertools.islice(Every(interval).before(state.last_tick + interval / 2), 1000)
    ids = {tick: derived_id(f"schedule:{name}", f"{tick:.6f}") for tick in ticks}
    found = {tick: queued[job_id] for tick, job_id in sorted(ids.items()) if job_id in queued}
    assert len(found) == len(queued), "a job is queued that is no tick"
    return found


# --- N schedulers ------------------------------------------------------------------------------------------------


async def test_three_schedulers_queue_each_tick_once_though_one_is_killed(shared: Place) -> None:
    """B12: jobs are derived from (schedule, instant), so 20 jobs are 20 instants, and none is missing."""
    processes = [shared.start("scheduler", EVERY=0.1) for _ in range(3)]
    async with shared.manager() as manager:
        async with asyncio.timeout(30):
            while await pending(manager) < 8:
                await asyncio.sleep(0.02)
        processes[0].send_signal(signal.SIGKILL)
        async with asyncio.timeout(30):
            while await pending(manager) < 20:
                await asyncio.sleep(0.02)
        for process in processes[1:]:
            process.kill()
            await asyncio.to_thread(process.wait)
        ticks = await queued_ticks(manager, "ticks", 0.1)
    assert len(ticks) >= 20
    steps = {round(later - earlier, 3) for earlier, later in itertools.pairwise(ticks)}
    assert steps == {0.1}, "a tick is missing, or was queued twice"
    late = [queued - tick for tick, queued in ticks.items()]
    assert min(late) >= 0, "a tick was queued before its time"
    assert max(late) < 1


async def test_a_tick_is_queued_once_though_its_job_has_ended_long_ago(here: Place) -> None:
    async with here.manager() as manager:
        scheduler = Scheduler(manager)
        entry = scheduler.every(60, dispatch(shop.step, "tick"))
        await started(scheduler)
        now = await manager.require("schedules", "").now()
        assert await scheduler.fire(entry, now + 60) is not None
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert await scheduler.fire(entry, now + 60) is None
        assert await scheduler.fire(entry, now + 30) is None
        assert here.counts("end") == {"tick": 1}


# --- what was missed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("catch_up", "jobs"), [("none", 0), ("last", 1), ("all", 10)])
async def test_ten_minutes_of_downtime(here: Place, catch_up: str, jobs: int) -> None:
    """B60."""
    async with here.time_machine() as (manager, advance):
        await within_a_minute(manager, advance)
        async with running(minutely(manager, catch_up=catch_up)):
            await registered(manager)
        await advance(600)
        async with running(minutely(manager, catch_up=catch_up)):
            await reaches(manager, jobs)
        now = await manager.require("schedules", "").now()
        expected = list(itertools.islice(Every(60).before(now), jobs))[::-1]
        assert list(await queued_ticks(manager, "minutely", 60)) == expected


async def test_all_means_at_most_a_hundred(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        await within_a_minute(manager, advance)
        async with running(minutely(manager, catch_up="all")):
            await registered(manager)
        await advance(7 * 3600)
        async with running(minutely(manager, catch_up="all")):
            await reaches(manager, 100)


async def within_a_minute(manager: Manager, advance: Advance) -> None:
    """No full minute passes by itself while the test runs."""
    now = await manager.require("schedules", "").now()
    await advance(60 - now % 60 + 5)


async def registered(manager: Manager) -> None:
    async with asyncio.timeout(10):
        while not await manager.require("schedules", "").list():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("late", "jobs"), [(180, 3), (600, 0)])
async def test_a_running_scheduler_that_is_late(
    here: Place, monkeypatch: pytest.MonkeyPatch, late: int, jobs: int
) -> None:
    """Below the grace of five minutes every minute fires, whatever the policy; above it the policy decides."""
    monkeypatch.setattr(schedules, "LOOK_AGAIN", 0.05)
    async with here.time_machine() as (manager, advance), running(minutely(manager, catch_up="none")):
        await registered(manager)
        await asyncio.sleep(0.1)
        already = await pending(manager)
        await advance(late)
        await reaches(manager, already + jobs)


async def test_an_outage_of_the_store_loses_no_tick(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "LOOK_AGAIN", 0.05)
    async with here.time_machine() as (manager, advance):
        await within_a_minute(manager, advance)
        faults = Faults(FaultPlan())
        scheduler = minutely(
            Manager(FaultyAdapter(manager.adapter, faults), settings=manager.settings), catch_up="none"
        )
        async with running(scheduler):
            await registered(manager)
            await asyncio.sleep(0.1)
            faults.plan = FaultPlan(cut_after=0)
            await advance(120)
            await asyncio.sleep(0.2)
            assert faults.lost_requests > 0
            faults.heal()
            await reaches(manager, 2)


async def test_a_job_whose_hooks_raise_does_not_stop_the_others(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Job):
        async def handle(self) -> None: ...

        def tags(self) -> tuple[str, ...]:
            raise ValueError("no tags")

    async with here.manager() as manager:
        scheduler = Scheduler(manager)
        scheduler.every(0.1, Broken())
        scheduler.every(0.1, dispatch(shop.step, "fine"))
        async with running(scheduler), asyncio.timeout(10):
            while await pending(manager) < 3:
                await asyncio.sleep(0.02)
    assert "schedule Broken: the tick at" in caplog.text


# --- options -----------------------------------------------------------------------------------------------------


async def test_skip_leaves_a_tick_out_while_the_job_of_an_earlier_one_is_active(here: Place) -> None:
    async with here.manager() as manager:
        scheduler = Scheduler(manager)
        entry = scheduler.every(60, dispatch(shop.step, "tick"), overlap="skip")
        await started(scheduler)
        now = await manager.require("schedules", "").now()
        first = await scheduler.fire(entry, now + 60)
        second = await scheduler.fire(entry, now + 120)
        assert first is not None
        assert second is not None
        assert second.holder == first.id
        assert await pending(manager) == 1
        assert await scheduler.run_now("step") == first.id
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        third = await scheduler.fire(entry, now + 180)
        assert third is not None
        assert third.holder is None


async def started(scheduler: Scheduler) -> None:
    """As if it had run before: the store knows its schedules."""
    for entry in scheduler.entries:
        await scheduler.manager.require("schedules", "").register(entry.name, entry.spec())


async def test_a_scheduled_job_may_be_unique(here: Place) -> None:
    async with here.manager() as manager:
        scheduler = Scheduler(manager)
        entry = scheduler.every(60, dispatch(shop.step, "tick").unique("k"))
        await started(scheduler)
        holder = await dispatch(shop.step, "by hand").unique("k").send()
        now = await manager.require("schedules", "").now()
        pushed = await scheduler.fire(entry, now + 60)
        assert pushed is not None
        assert pushed.holder == holder.id


async def test_jitter_spreads_within_its_bounds(here: Place) -> None:
    async with here.manager() as manager:
        scheduler = Scheduler(manager)
        entry = scheduler.every(1, dispatch(shop.step, "tick"), jitter=50)
        await started(scheduler)
        now = await manager.require("schedules", "").now()
        delays = []
        for tick in range(1, 31):
            pushed = await scheduler.fire(entry, now + tick)
            assert pushed is not None
            view = await manager.require("jobs", "").get(pushed.id)
            delays.append(view.envelope.delay)
        assert 0 <= min(delays) < 15
        assert 35 < max(delays) <= 50
        depth = await manager.depth()
        assert depth.delayed + depth.pending == 30, "the shortest delays may be over by now"


async def test_the_options_of_a_dispatch_count(here: Place) -> None:
    async with here.manager() as manager:
        scheduler = Scheduler(manager)
        scheduler.every(60, dispatch(shop.step, "tick").on_queue("slow").priority(2).retries(7).tags("t"))
        view = await manager.require("jobs", "").get(await scheduler.run_now("step"))
        assert (view.queue, view.envelope.priority, view.envelope.max_attempts) == ("slow", 2, 8)
        assert view.envelope.tags == ("t",)


def test_defaults() -> None:
    entry = Scheduler().every(60, dispatch(shop.step, "tick"))
    assert (entry.name, entry.catch_up, entry.overlap, entry.jitter) == ("step", "last", "allow", 0.0)
    nightly = Scheduler().cron("0 3 * * *", dispatch(shop.step, "tick"))
    assert nightly.timetable.describe()["tz"] == "UTC"
    assert (schedules.MISFIRE_GRACE, schedules.MOST_CAUGHT_UP) == (300.0, 100)


async def test_what_cannot_be_scheduled_is_refused() -> None:
    scheduler = Scheduler(tz="Europe/Berlin")
    scheduler.cron("@daily", dispatch(shop.step, "a"))
    tick = shop.step.bind("b")
    for options, error, text in [
        ({}, InvalidOption, "two schedules are called 'step'"),
        ({"name": "no such name!"}, InvalidName, "schedule name"),
        ({"name": "b", "catch_up": "most"}, InvalidOption, "catch_up is"),
        ({"name": "b", "overlap": "queue"}, InvalidOption, "overlap is"),
        ({"name": "b", "jitter": -1}, InvalidOption, "jitter"),
        ({"name": "b", "tz": "Mars/Base"}, InvalidOption, "IANA"),
    ]:
        with pytest.raises(error, match=text):
            scheduler.cron("@daily", tick, **options)
    with pytest.raises(InvalidJob, match="Plain callables"):
        scheduler.every(60, lambda: None, name="b")
    with pytest.raises(InvalidOption, match="every"):
        scheduler.every(0, tick, name="b")
    assert [entry.name for entry in scheduler.entries] == ["step"]


# --- control -----------------------------------------------------------------------------------------------------


async def test_list_tells_the_next_five_runs_and_what_only_the_store_knows(here: Place) -> None:
    async with here.manager() as manager:
        other = Scheduler(manager)
        other.every(60, dispatch(shop.step, "tick"), name="elsewhere")
        await started(other)
        scheduler = Scheduler(manager, tz="Europe/Berlin")
        scheduler.cron("0 3 * * *", dispatch(shop.step, "tick"), name="nightly")
        own, elsewhere = await scheduler.list()
        now = await manager.require("schedules", "").now()
        assert (own.name, own.last_tick, own.paused) == ("nightly", None, False)
        assert own.spec["words"] == "At 03:00 every day"
        assert own.spec["tz"] == "Europe/Berlin"
        assert len(own.next_runs) == 5
        assert 0 < own.next_runs[0] - now <= 86_400 + 3600
        assert {later - earlier for earlier, later in itertools.pairwise(own.next_runs)} <= {
            86_400.0,
            90_000.0,
            82_800.0,
        }
        assert (elsewhere.name, elsewhere.next_runs) == ("elsewhere", ())
        assert elsewhere.last_tick == pytest.approx(now, abs=30)


async def test_a_paused_schedule_fires_nothing_and_catches_nothing_up(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        await within_a_minute(manager, advance)
        scheduler = minutely(manager, catch_up="all")
        async with running(scheduler):
            await registered(manager)
        await scheduler.pause("minutely")
        assert (await scheduler.list())[0].paused
        await advance(600)
        async with running(minutely(manager, catch_up="all")):
            await reaches(manager, 0)
        await scheduler.resume("minutely")
        assert not (await scheduler.list())[0].paused
        async with running(minutely(manager, catch_up="all")):
            await reaches(manager, 0)
            await advance(60)
        async with running(minutely(manager, catch_up="all")):
            await reaches(manager, 1)
        with pytest.raises(JobNotFound, match="no schedule is called"):
            await scheduler.pause("unknown")


async def test_run_now_is_beside_the_ticks(here: Place) -> None:
    async with here.manager() as manager:
        scheduler = minutely(manager)
        await started(scheduler)
        before = (await scheduler.list())[0].last_tick
        first, second = await scheduler.run_now("minutely"), await scheduler.run_now("minutely")
        assert first != second
        assert await pending(manager) == 2
        assert (await scheduler.list())[0].last_tick == before
        with pytest.raises(JobNotFound, match="there are: minutely"):
            await scheduler.run_now("unknown")


async def test_aclose_ends_run(here: Place) -> None:
    async with here.manager() as manager:
        scheduler = Scheduler(manager)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(scheduler.run())
            await asyncio.sleep(0.05)
            await scheduler.aclose()


# --- beside other schedulers, and without any ----------------------------------------------------------------------


async def test_the_locker_for_other_peoples_schedulers(here: Place) -> None:
    async with here.manager() as manager, here.manager() as other:
        lockers = [ScheduleLocker(one.require("locker", "")) for one in (manager, other)]
        if here.url.startswith("memory"):
            lockers[1] = ScheduleLocker(manager.require("locker", ""))  # one process, one memory
        unlock = await lockers[0].try_lock("nightly:2026-11-29", 60)
        assert unlock is not None
        assert await lockers[1].try_lock("nightly:2026-11-29", 60) is None
        assert await lockers[1].try_lock("nightly:2026-11-30", 60) is not None
        assert await unlock()
        assert not await unlock(), "it was unlocked already"
        again = await lockers[1].try_lock("nightly:2026-11-29", 0.2)
        assert again is not None
        await asyncio.sleep(0.3)
        assert await lockers[0].try_lock("nightly:2026-11-29", 60) is not None, "it ends with its time"


async def test_on_the_inline_driver_a_tick_runs_its_job() -> None:
    ran = asyncio.Event()

    @job
    async def tick() -> None:
        ran.set()

    async with Manager("sync") as manager:
        scheduler = Scheduler(manager)
        scheduler.every(0.1, tick)
        async with running(scheduler), asyncio.timeout(5):
            await ran.wait()


def test_a_driver_without_schedules_says_so() -> None:
    scheduler = Scheduler(Manager("sqs://default"))
    scheduler.every(60, dispatch(shop.step, "tick"))
    with pytest.raises(UnsupportedByDriver, match=r"schedules\. .*QUEUE_STORE_URL"):
        asyncio.run(scheduler.list())
