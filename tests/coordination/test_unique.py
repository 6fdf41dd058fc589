"""One active job per key: from many processes, through everything that can happen to it, and no longer."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from nimbusq import DuplicateJob, Job, Manager, Release, Worker, current_job, dispatch, job
from nimbusq.batch import Batch
from nimbusq.errors import InvalidOption, InvalidUniqueKey, PayloadTooLarge, StoreUnavailable
from nimbusq.failed import retry
from nimbusq.testing.faults import FaultPlan, Faults, FaultyAdapter
from nimbusq.unique import acquire_unique_lock, dispatch_unique, is_unique_locked, release_unique_lock
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop


class Sync(Job):
    account: int

    async def handle(self) -> None: ...

    def unique_id(self) -> str:
        return f"account:{self.account}"


KINDS = ["slot", "lock"]


async def fifty_sends(place: Place, kind: str) -> list[tuple[str, str]]:
    """What five processes are told that send one unique job ten times each, all at once."""
    told = (await asyncio.to_thread(place.start("sender", kind, "k", 5, 10).communicate))[0]
    answers = [(status, job_id) for status, job_id in (line.split() for line in told.splitlines())]
    assert len(answers) == 50, place.errors()
    return answers


@pytest.mark.parametrize("kind", KINDS)
async def test_fifty_sends_from_five_processes_queue_one(shared: Place, kind: str) -> None:
    answers = await fifty_sends(shared, kind)
    queued = [job_id for status, job_id in answers if status == "queued"]
    assert len(queued) == 1
    assert {job_id for status, job_id in answers if status == "duplicate"} == {queued[0]}
    async with shared.manager() as manager:
        assert (await manager.depth()).pending == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_fifty_sends_from_fifty_tasks_queue_one(here: Place, kind: str) -> None:
    async with here.manager() as manager:

        async def send() -> tuple[str, str]:
            job = dispatch(shop.step, "one")
            unique = job.unique("k", on_duplicate="return") if kind == "slot" else job.unique_for(key="k")
            receipt = await unique.send()
            return receipt.status, receipt.id

        answers = await asyncio.gather(*(send() for _ in range(50)))
        (holder,) = {job_id for status, job_id in answers if status == "queued"}
        assert sorted(answers).count(("duplicate", holder)) == 49
        assert (await manager.depth()).pending == 1


async def holds(key: str = "k") -> bool:
    """Another send is told that the key is taken; one that is not is cancelled again."""
    receipt = await dispatch(shop.step, "probe").unique(key, on_duplicate="return").on_queue("probes").send()
    if receipt.status == "queued":
        await receipt.cancel()
    return receipt.status == "duplicate"


async def test_the_slot_is_held_through_delay_retry_and_release_and_freed_when_done(here: Place) -> None:
    async with here.manager() as manager:
        held: list[bool] = []
        for builder, attempts in (
            (dispatch(shop.step, "delayed").delay(0.3), 1),
            (dispatch(shop.flaky, "flaky", 2), 3),
            (dispatch(shop.patient, "patient", 3, 0.1), 1),
        ):
            receipt = await builder.unique("k").send()
            probe = dispatch(builder.disarm()[0]).unique("k", on_duplicate="return")
            async with workers(Worker(manager, lease=2)):
                while (view := await receipt.refresh()) is not None and view.state != "done":
                    other = await probe.send()
                    if other.id != receipt.id:  # it had ended in between
                        await other.cancel()
                        break
                    held.append(other.status == "duplicate")
                    await asyncio.sleep(0.02)
                await here.until_empty(manager)
            view = await receipt.refresh()
            assert view is not None
            assert (view.state, view.attempt) == ("done", attempts), "its own key did not refuse it"
            again = await probe.send()
            assert again.status == "queued"
            await again.cancel()
        assert len(held) > 10
        assert all(held)


async def test_the_slot_is_freed_when_the_job_failed_for_good(here: Place) -> None:
    async with here.manager() as manager:
        first = await dispatch(shop.broken, "b").unique("k").send()
        with pytest.raises(DuplicateJob) as told:
            await dispatch(shop.broken, "b").unique("k").send()
        assert (told.value.job_id, told.value.name, told.value.key) == (first.id, "broken", "k")
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        second = await dispatch(shop.broken, "b").unique("k").send()
        assert second.status == "queued"
        told_of_conflict = await retry([first.id])
        assert dict(told_of_conflict.conflicts) == {first.id: second.id}
        assert await manager.require("failed", "").get(first.id) is not None


async def test_the_slot_is_freed_when_the_job_is_cancelled(here: Place) -> None:
    async with here.manager():
        receipt = await dispatch(shop.step, "one").delay(hours=24).unique("k").send()
        assert await holds(), "a delayed job has its slot from the send on"
        assert await receipt.cancel()
        assert not await holds()


async def test_a_paused_job_keeps_its_slot(here: Place) -> None:
    async with here.manager() as manager:
        receipt = await dispatch(shop.step, "one").unique("k").send()
        await manager.require("jobs", "").pause(receipt.id)
        assert await holds()
        await manager.require("jobs", "").resume(receipt.id)
        assert await holds()


async def test_a_crash_keeps_the_slot_until_the_job_has_ended(shared: Place) -> None:
    async with shared.manager() as manager:
        receipt = await dispatch(shop.suicidal, "s").unique("k").send()
        shared.start("nursery", 1, LEASE=0.8)
        await shared.until(lambda: bool(shared.counts("end")), "the worker's death")
        other = await dispatch(shop.suicidal, "s").unique("k", on_duplicate="return").send()
        assert (other.status, other.id) == ("duplicate", receipt.id)
        await shared.until_empty(manager)
        assert shared.counts("end") == {"s": 2}
        assert (await dispatch(shop.suicidal, "s").unique("k").send()).status == "queued"


async def test_a_unique_job_with_no_retries_frees_its_slot_when_its_worker_died(shared: Place) -> None:
    async with shared.manager() as manager:
        receipt = await dispatch(shop.suicidal, "s").retries(0).unique("k").send()
        shared.start("nursery", 1, LEASE=0.8)
        await shared.until_empty(manager, within=10)
        failed = await manager.require("failed", "").get(receipt.id)
        assert (failed.kind, failed.attempts) == ("WorkerLost", 1)
        assert (await dispatch(shop.suicidal, "s").unique("k").send()).status == "queued"


async def test_the_lock_expires_while_its_job_still_waits(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        first = await dispatch(Sync(account=1)).unique_for(5).send()
        second = await dispatch(Sync(account=1)).unique_for(5).send()
        assert (first.status, second.status, second.id) == ("queued", "duplicate", first.id)
        assert await is_unique_locked(Sync(account=1))
        assert not await is_unique_locked(Sync(account=2))
        await advance(6)
        assert (await dispatch(Sync(account=1)).unique_for(60).send()).status == "queued"
        assert (await manager.depth()).pending == 2


async def test_the_lock_is_freed_by_the_end_of_its_own_job_only(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        await dispatch(Sync(account=1)).unique_for(5).send()
        await advance(6)
        second = await dispatch(Sync(account=1)).on_queue("later").unique_for(60).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert await is_unique_locked(Sync(account=1)), "the first job's end freed the second's lock"
        assert (await dispatch_unique(Sync(account=1))).id == second.id


async def test_slot_and_lock_never_see_each_other(here: Place) -> None:
    async with here.manager():
        assert (await dispatch(Sync(account=1)).unique().send()).status == "queued"
        assert (await dispatch(Sync(account=1)).unique_for(60).send()).status == "queued"
        with pytest.raises(DuplicateJob):
            await dispatch(Sync(account=1)).unique().send()
        assert (await dispatch_unique(Sync(account=1))).status == "duplicate"


async def test_dispatch_alone_never_deduplicates(here: Place) -> None:
    async with here.manager() as manager:
        await dispatch(Sync(account=1)).send()
        await dispatch(Sync(account=1)).send()
        assert (await manager.depth()).pending == 2


async def test_the_lock_by_hand(here: Place) -> None:
    async with here.manager():
        job = Sync(account=1)
        token = await acquire_unique_lock(job)
        assert token is not None
        assert await acquire_unique_lock(job) is None
        assert (await dispatch_unique(job)).status == "duplicate"
        assert not await release_unique_lock(job, "wrong")
        assert await release_unique_lock(job, token)
        assert not await is_unique_locked(job)
        assert (await dispatch_unique(job)).status == "queued"
        assert await release_unique_lock(job), "whoever holds it"
        assert (await dispatch_unique(job)).status == "queued"


async def test_the_lock_by_hand_lasts_an_hour(here: Place) -> None:
    async with here.time_machine() as (_, advance):
        assert await acquire_unique_lock(Sync(account=1)) is not None
        await advance(3590)
        assert await is_unique_locked(Sync(account=1))
        assert await acquire_unique_lock(Sync(account=1)) is None
        await advance(20)
        assert not await is_unique_locked(Sync(account=1))
        assert (await dispatch_unique(Sync(account=1))).status == "queued"


async def test_keys_are_scoped_by_job_name_and_never_run_together(here: Place) -> None:
    async with here.manager() as manager:
        for builder in (
            dispatch(shop.step, "x").unique("b:c"),
            dispatch(shop.broken, "x").unique("b:c"),
            dispatch(shop.step, "x").unique("B:C"),
            dispatch(shop.step, "x").unique("\u00e9"),
            dispatch(shop.step, "x").unique("e\u0301"),
            dispatch(shop.step, "x").unique("é" * 128),
            dispatch(shop.step, "x").unique("x" * 256),
            dispatch(shop.step, "x").unique("x" * 255 + "y"),
            dispatch(shop.step, "x").unique("data.id' OR '1'='1"),
        ):
            assert (await builder.send()).status == "queued"
        assert (await manager.depth()).pending == 9


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", "x" * 257, "é" * 129, "€" * 86])
async def test_a_key_that_breaks_the_rules_stores_nothing(here: Place, key: str) -> None:
    async with here.manager() as manager:
        with pytest.raises(InvalidUniqueKey):
            dispatch(shop.step, "x").unique(key)
        assert (await manager.depth()).pending == 0


async def test_without_a_key_the_arguments_count_whatever_their_order(here: Place) -> None:
    async with here.manager():
        assert (await dispatch(shop.flaky, name="a", failures=0).unique().send()).status == "queued"
        with pytest.raises(DuplicateJob):
            await dispatch(shop.flaky, failures=0, name="a").unique().send()
        assert (await dispatch(shop.flaky, failures=0, name="b").unique().send()).status == "queued"


async def test_members_and_links_cannot_be_unique(here: Place) -> None:
    async with here.manager() as manager:
        with pytest.raises(InvalidOption, match="cannot be unique"):
            await Batch([dispatch(shop.step, "x").unique("k")]).send()
        assert (await manager.depth()).pending == 0


# --- the rest of the checklist -----------------------------------------------------------------------------------


async def test_defaults(here: Place) -> None:
    async with here.manager():
        slot, lock = await dispatch(Sync(account=1)).unique().send(), await dispatch_unique(Sync(account=1))
        kept = [(await receipt.refresh()).envelope.unique for receipt in (slot, lock)]
        assert (kept[0].key, kept[0].mode, kept[0].ttl) == ("account:1", "slot", None)
        assert (kept[1].key, kept[1].mode, kept[1].ttl) == ("account:1", "lock", 3600.0)
        with pytest.raises(DuplicateJob):
            await dispatch(Sync(account=1)).unique().send()
        assert (await dispatch(Sync(account=1)).unique_for().send()).status == "duplicate"


async def test_a_unique_send_takes_every_other_option(here: Place) -> None:
    async with here.manager() as manager:
        receipt = await dispatch(Sync(account=1)).delay(60).on_queue("slow").priority(2).unique_for(60).send()
        view = await receipt.refresh()
        assert view is not None
        assert (view.queue, view.state, view.envelope.priority) == ("slow", "delayed", 2)
        assert (await dispatch_unique(Sync(account=1))).id == receipt.id
        assert (await manager.depth()).pending == 0


@pytest.mark.parametrize(("how", "ends"), [("retry", "failed"), ("release", "done")])
async def test_the_lock_is_held_through_what_puts_the_job_back_and_freed_by_its_end(
    here: Place, how: str, ends: str
) -> None:
    @job(retries=1, backoff=0.3)
    async def comes_back() -> None:
        shop.note("start", "run")
        if how == "retry":
            raise ValueError("again")
        if not current_job().releases:
            raise Release(0.3)

    async with here.manager() as manager:
        first = await dispatch(comes_back).unique_for(60, key="k").send()
        async with workers(Worker(manager, lease=2)):
            await here.until(lambda: bool(here.counts("start")), "the first run")
            async with asyncio.timeout(5):
                while (await first.refresh()).state != "delayed":
                    await asyncio.sleep(0.01)
            during = await dispatch(comes_back).unique_for(60, key="k").send()
            await here.until_empty(manager)
        assert (during.status, during.id) == ("duplicate", first.id)
        assert here.counts("start") == {"run": 2}
        assert (await first.refresh()).state == ends
        assert (await dispatch(comes_back).unique_for(60, key="k").send()).status == "queued"


async def test_asking_takes_nothing_from_those_who_send(here: Place) -> None:
    """The seed's IsUniqueLocked acquires the lock for a moment, and a dispatch in that moment is dropped."""
    async with here.manager() as manager:
        asking = True

        async def ask() -> None:
            while asking:
                await is_unique_locked(Sync(account=0))
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(ask())
            for number in range(1, 21):
                assert (await dispatch_unique(Sync(account=0))).status == "queued", number
                await release_unique_lock(Sync(account=0))
            asking = False
        assert (await manager.depth()).pending == 20


@pytest.mark.parametrize("mode", ["slot", "lock"])
async def test_a_send_that_failed_leaves_the_key_free(here: Place, mode: str) -> None:
    class Big(Sync):
        blob: str = ""

    def send(one: Job) -> Any:
        return dispatch(one).unique() if mode == "slot" else dispatch(one).unique_for(60)

    async with here.manager() as manager:
        with pytest.raises(PayloadTooLarge):
            await send(Big(account=1, blob="x" * 300_000)).send()
        away = Manager(
            FaultyAdapter(manager.adapter, Faults(FaultPlan(before=1.0))), settings=manager.settings
        )
        away.make_current()
        with pytest.raises(StoreUnavailable):
            await send(Big(account=1)).send()
        manager.make_current()
        assert (await send(Big(account=1)).send()).status == "queued"


async def test_a_stalled_worker_frees_nobody_elses_slot(shared: Place) -> None:
    """It is stopped for longer than its lease; its job ends as lost, another one takes the slot, then it goes on."""
    async with shared.manager(lease=1) as manager:
        first = await dispatch(shop.held, "stalled").retries(0).unique("k").send()
        stalled = shared.start("worker", LEASE=1)
        await shared.until(lambda: bool(shared.counts("start")), "the start")
        shared.freeze(stalled)
        async with (
            workers(Worker(manager, "elsewhere", lease=1), Worker(manager, lease=1)),
            asyncio.timeout(15),
        ):
            while (await first.refresh()).state != "failed":
                await asyncio.sleep(0.02)
        second = await dispatch(shop.held, "second").unique("k").on_queue("later").send()
        assert second.status == "queued"
        shop.let_go("stalled")
        stalled.send_signal(signal.SIGCONT)
        await shared.until(
            lambda: bool(shared.counts("end")["stalled"]) or "lost" in shared.errors(), "its end", 10
        )
        await asyncio.sleep(0.5)
        third = await dispatch(shop.held, "third").unique("k", on_duplicate="return").send()
        assert (third.status, third.id) == ("duplicate", second.id)
        assert (await first.refresh()).state == "failed", "the stalled run settled nothing"
