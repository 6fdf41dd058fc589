"""Batches: exact counts and callbacks, whoever dies and when."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

import pytest

from nimbusq import (
    Batch,
    BatchNotFound,
    BatchState,
    Chain,
    DispatchError,
    Job,
    NimbusqError,
    Observer,
    Worker,
    dispatch,
    job,
)
from nimbusq.batch import current_batch, find_batch, register_batch
from nimbusq.driver import BatchRecord, NewBatch
from nimbusq.errors import InvalidJob, InvalidOption
from nimbusq.failed import retry
from nimbusq.ids import derived_id, new_id
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop

MEMBERS = 1000


def with_callbacks(batch: Batch) -> Batch:
    return batch.then(shop.on_then).catch(shop.on_catch).finally_(shop.on_finally)


async def test_counts_and_callbacks_of_a_mixed_batch(here: Place) -> None:
    class Watch(Observer):
        finished: ClassVar[list[BatchState]] = []

        def batch_finished(self, batch: BatchState) -> None:
            self.finished.append(batch)

    watch = Watch()
    async with here.manager() as manager:
        manager.observers.add(watch)
        members = [dispatch(shop.step, f"m{n}") for n in range(18)]
        members += [dispatch(shop.flaky, "flaky", 2), dispatch(shop.broken, "broken")]
        chain = Chain(dispatch(shop.step, "link1"), dispatch(shop.step, "link2"))
        batch = await with_callbacks(Batch([*members, chain]).named("import")).send()
        assert (batch.state.total, batch.state.pending, batch.state.sealed) == (21, 21, True)
        async with workers(Worker(manager, lease=2), Worker(manager, lease=2)):
            await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed, state.processed, state.progress) == (
            21,
            0,
            1,
            21,
            1.0,
        )
        assert state.finished
        assert state.name == "import"
        assert state.errors == ("broken: ValueError: broken",)
        assert here.counts("then") == {}
        assert [line[2:] for line in here.notes("finally")] == [[batch.id, "21", "0", "1"]]
        assert len(here.notes("catch")) == 1
        assert [finished.id for finished in watch.finished] == [batch.id]
        assert here.counts("end")["link2"] == 1


async def test_then_runs_when_nothing_failed(here: Place) -> None:
    async with here.manager() as manager:
        batch = await with_callbacks(Batch([dispatch(shop.step, "a"), dispatch(shop.step, "b")])).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert [line[2:] for line in here.notes("then")] == [[batch.id, "2", "0", "0"]]
        assert len(here.notes("finally")) == 1
        assert here.notes("catch") == []


async def test_an_empty_batch_finishes_at_once(here: Place) -> None:
    async with here.manager() as manager:
        batch = await with_callbacks(Batch()).send()
        assert batch.state.finished
        assert batch.state.progress == 1.0
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert (len(here.notes("then")), len(here.notes("finally"))) == (1, 1)


async def test_every_tenth_member_dies_after_its_body(shared: Place) -> None:
    async with shared.manager() as manager:
        jobs = [
            dispatch(shop.suicidal if n % 10 == 9 else shop.step, f"m{n}").retries(50) for n in range(MEMBERS)
        ]
        batch = await with_callbacks(Batch(jobs)).send()
        shared.start("nursery", 3, LEASE=1, CONCURRENCY=8)
        least, deadline = MEMBERS, time.monotonic() + 90
        while not (state := await batch.refresh()).finished:
            assert time.monotonic() < deadline, shared.errors()
            assert state.processed + state.pending == MEMBERS
            least = min(least, state.pending)
            await asyncio.sleep(0.02)
        await shared.until_empty(manager)
        assert least >= 0
        assert (state.total, state.pending, state.failed) == (MEMBERS, 0, 0)
        runs = shared.counts("end")
        assert len(runs) == MEMBERS
        assert sum(runs.values()) >= MEMBERS + MEMBERS // 10, "a member that died was not run again"
        assert (len(shared.notes("then")), len(shared.notes("finally"))) == (1, 1)


async def test_a_killed_producer_leaves_an_open_batch_that_can_be_continued(shared: Place) -> None:
    batch_id = new_id()
    first = shared.start("producer", batch_id, 2000, 700)
    await shared.until(lambda: first.poll() is not None, "the producer's death")
    async with shared.manager() as manager:
        shared.start("worker", LEASE=2, CONCURRENCY=50)
        await shared.until_empty(manager)
        state = await (await find_batch(batch_id)).refresh()
        assert (state.total, state.pending, state.sealed, state.finished) == (700, 0, False, False)
        assert shared.notes("finally") == []
        second = shared.start("producer", batch_id, 2000, -1)
        await shared.until(lambda: second.poll() is not None, "the second producer's end")
        assert second.returncode == 0, shared.errors()
        await shared.until_empty(manager)
        state = await (await find_batch(batch_id)).refresh()
        assert (state.total, state.pending, state.failed, state.finished) == (2000, 0, 0, True)
        assert max(shared.counts("start").values()) == 1, "a member was sent twice"
        assert [line[3] for line in shared.notes("finally")] == ["2000"]


async def test_a_batch_that_is_still_filled_does_not_finish(here: Place) -> None:
    async with here.manager() as manager:
        store = manager.require("batches", "")
        await store.create(NewBatch(id="b"))
        added = await store.add("b", [], offset=0)
        assert added.mark == 0
        batch = await find_batch("b")
        assert not batch.state.finished
        assert (await store.seal("b")).finished


async def test_one_of_a_hundred_records_finishes_the_batch(here: Place) -> None:
    async with here.manager() as manager:
        store = manager.require("batches", "")
        members = [shop.step.bind(f"m{n}") for n in range(100)]
        batch = await Batch(members).send()
        records = [
            BatchRecord(batch_id=batch.id, member=derived_id(batch.id, n), failed=False) for n in range(100)
        ]
        updates = await asyncio.gather(*(store.record(record) for record in records))
        assert [update.finished for update in updates].count(True) == 1
        assert all(update.counted for update in updates)
        again = await store.record(records[0])
        assert (again.counted, again.finished, again.state.pending) == (False, False, 0)


async def test_the_first_fifty_errors_are_kept(here: Place) -> None:
    async with here.manager() as manager:
        batch = await Batch([dispatch(shop.broken, f"m{n}") for n in range(60)]).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.failed, len(state.errors)) == (60, 50)


async def test_a_retried_failed_member_changes_no_counter(here: Place) -> None:
    async with here.manager() as manager:
        batch = await with_callbacks(Batch([dispatch(shop.broken, "x"), dispatch(shop.step, "y")])).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
            before = await batch.refresh()
            assert (await retry([derived_id(batch.id, 0)])).retried == 1
            await here.until_empty(manager)
        after = await batch.refresh()
        assert (before.pending, before.failed) == (after.pending, after.failed) == (0, 1)
        assert len(here.notes("finally")) == 1


async def test_cancel_ends_what_has_not_started(here: Place) -> None:
    async with here.manager() as manager:
        batch = await with_callbacks(
            Batch([dispatch(shop.step, f"m{n}").delay(3600) for n in range(5)])
        ).send()
        state = await batch.cancel()
        assert (state.cancelled, state.pending, state.failed) == (True, 0, 5)
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert (here.notes("start"), here.notes("catch"), here.notes("then")) == ([], [], [])
        assert len(here.notes("finally")) == 1


async def test_cancel_on_failure_cancels_the_rest(here: Place) -> None:
    async with here.manager() as manager:
        members = [
            dispatch(shop.broken, "bad").priority(1),
            *(dispatch(shop.step, f"m{n}") for n in range(20)),
        ]
        batch = await with_callbacks(Batch(members).cancel_on_failure()).send()
        async with workers(Worker(manager, lease=2, concurrency=1)):
            await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.cancelled, state.pending, state.finished) == (True, 0, True)
        assert state.failed > 10
        assert len(here.notes("catch")) == 1, "cancelled members have no catch"


class Grow(Job):
    """Adds three members to its own batch; fails once after that."""

    async def handle(self) -> None:
        from nimbusq import current_job

        batch = await current_batch()
        await batch.add(*(shop.step.bind(f"added{n}") for n in range(3)))
        if current_job().attempt == 1:
            raise ValueError("once more")


async def test_members_added_from_inside_are_added_once(here: Place) -> None:
    async with here.manager() as manager:
        batch = await Batch([dispatch(Grow()).retries(2)]).finally_(shop.on_finally).send()
        async with workers(Worker(manager, lease=2)):
            await here.until(lambda: bool(here.notes("finally")), "the batch's end")
            await here.until_empty(manager)
        assert (await batch.refresh()).total == 4
        assert here.counts("end") == {"added0": 1, "added1": 1, "added2": 1}
        with pytest.raises(InvalidOption):
            await batch.add(shop.step.bind("late"))


async def test_callbacks_by_name(here: Place) -> None:
    register_batch("by-name", finally_=shop.on_finally)
    async with here.manager() as manager:
        await Batch([dispatch(shop.step, "x")]).named("by-name").send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert len(here.notes("finally")) == 1


async def test_what_cannot_be_sent_is_refused(here: Place) -> None:
    async with here.manager() as manager:
        with pytest.raises(InvalidJob, match=r"run\(\)"):
            await Batch([dispatch(shop.step, "x")]).then(lambda: None).send()
        with pytest.raises(DispatchError):
            Batch().named("no such name!")
        with pytest.raises(BatchNotFound):
            await find_batch("no-such-batch")
        with pytest.raises(NimbusqError, match="member of a batch"):
            await current_batch()
        assert (await manager.depth()).pending == 0


async def test_run_stores_nothing_and_takes_closures(here: Place) -> None:
    seen: list[object] = []

    @job
    async def add(n: int) -> None:
        if n == 3:
            raise ValueError("three")
        seen.append(n)

    state = await (
        Batch([add.bind(n) for n in range(5)])
        .catch(lambda error: seen.append(str(error)))
        .then(lambda: seen.append("then"))
        .finally_(lambda batch: seen.append((batch.total, batch.failed)))
        .run(concurrency=2)
    )
    assert (state.total, state.pending, state.failed) == (5, 0, 1)
    assert seen == [0, 1, 2, "three", 4, (5, 1)]
