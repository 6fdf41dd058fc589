"""Batches: exact counts and callbacks, whoever dies and when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nimbusq import (
    Batch,
    BatchNotFound,
    BatchState,
    Chain,
    DispatchError,
    Fail,
    Job,
    Manager,
    NimbusqError,
    Observer,
    Release,
    Worker,
    dispatch,
    job,
)
from nimbusq.batch import current_batch, find_batch, register_batch
from nimbusq.builder import Dispatch
from nimbusq.driver import BatchRecord, NewBatch
from nimbusq.errors import InvalidJob, InvalidOption, NoManager, StoreUnavailable
from nimbusq.failed import retry
from nimbusq.ids import derived_id, new_id
from nimbusq.testing.faults import FaultPlan, Faults, FaultyAdapter
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop

MEMBERS = 1000


def with_callbacks(batch: Batch) -> Batch:
    return batch.then(shop.on_then).catch(shop.on_catch).finally_(shop.on_finally)


async def test_counts_and_callbacks_of_a_mixed_batch(here: Place) -> None:
    """21 members on two workers of three slots; one fails in each of its four runs, one is a chain."""

    class Watch(Observer):
        def __init__(self) -> None:
            self.finished: list[BatchState] = []

        def batch_finished(self, batch: BatchState) -> None:
            self.finished.append(batch)

    watches = Watch(), Watch()
    async with here.manager() as manager:
        for watch in watches:
            manager.observers.add(watch)
        members = [dispatch(shop.step, f"m{n}") for n in range(18)]
        members += [dispatch(shop.flaky, "flaky", 2), dispatch(shop.flaky, "broken", 99)]
        chain = Chain(dispatch(shop.step, "link1"), dispatch(shop.step, "link2"))
        batch = await with_callbacks(Batch([*members, chain]).named("import")).send()
        assert (batch.state.total, batch.state.pending, batch.state.sealed) == (21, 21, True)
        async with workers(*(Worker(manager, lease=2, concurrency=3) for _ in range(2))):
            await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed) == (21, 0, 1)
        assert (state.processed, state.progress, state.finished, state.name) == (21, 1.0, True, "import")
        assert state.errors == ("flaky: ValueError: broken",)
        assert here.counts("start")["broken"] == 4
        assert here.counts("then") == {}
        assert [line[2:] for line in here.notes("finally")] == [[batch.id, "21", "0", "1"]]
        (caught,) = [line[2:] for line in here.notes("catch")]
        assert caught[:2] == [batch.id, derived_id(batch.id, 19)]
        assert caught[2:] == ["flaky:", "ValueError:", "broken"]
        assert [[ended.id for ended in watch.finished] for watch in watches] == [[batch.id]] * 2
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
    """B06. Beside a thousand members that all succeed in the end runs a batch of a hundred, ten of which fail."""
    async with shared.manager() as manager:
        jobs = [
            dispatch(shop.suicidal if n % 10 == 9 else shop.step, f"m{n}").retries(50) for n in range(MEMBERS)
        ]
        failing = await with_callbacks(Batch([*failing_members()])).send()
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
        runs = {name: count for name, count in shared.counts("end").items() if name.startswith("m")}
        assert len(runs) == MEMBERS
        assert sum(runs.values()) >= MEMBERS + MEMBERS // 10, "a member that died was not run again"
        for callback in ("then", "finally"):
            await assert_one_job(shared, manager, batch.id, callback)
        state = await failing.refresh()
        assert (state.total, state.pending, state.failed, len(state.errors)) == (100, 0, 10, 10)
        await assert_one_job(shared, manager, failing.id, "finally")
        for n in range(9, 100, 10):
            await assert_one_job(shared, manager, failing.id, "catch", derived_id(failing.id, n))
        assert failing.id not in shared.counts("then")
        assert {line[3] for line in shared.notes("catch")} == {
            derived_id(failing.id, n) for n in range(9, 100, 10)
        }


def failing_members() -> Iterator[Dispatch[None]]:
    """A hundred, every tenth of which fails: by itself, or because its worker dies in its only run."""
    for n in range(100):
        match n % 20:
            case 9:
                yield dispatch(shop.broken, f"f{n}")
            case 19:
                yield dispatch(shop.suicidal, f"f{n}").retries(0)
            case _:
                yield dispatch(shop.step, f"f{n}").retries(50)


async def assert_one_job(place: Place, manager: Manager, batch_id: str, kind: str, member: str = "") -> None:
    """The callback was queued once and ran. A worker that died may have had it, which counts as an attempt."""
    job_id = derived_id(batch_id, f"{kind}:{member}" if member else kind)
    view = await manager.require("jobs", "").get(job_id)
    assert view.state == "done"
    runs = [line for line in place.notes(kind) if line[2] == batch_id and (not member or line[3] == member)]
    assert 1 <= len(runs) <= view.attempt


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
    async with here.manager() as manager, here.manager() as elsewhere:
        if not here.processes:
            elsewhere = manager  # one process, one memory
        stores = [one.require("batches", "") for one in (manager, elsewhere)]
        members = [shop.step.bind(f"m{n}") for n in range(100)]
        batch = await Batch(members).send(manager)
        records = [
            BatchRecord(batch_id=batch.id, member=derived_id(batch.id, n), failed=False) for n in range(100)
        ]
        updates = await asyncio.gather(*(stores[n % 2].record(one) for n, one in enumerate(records)))
        assert [update.finished for update in updates].count(True) == 1
        assert all(update.counted for update in updates)
        again = await stores[1].record(records[0])
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


async def test_a_failed_member_that_succeeds_later_repairs_nothing(here: Place) -> None:
    """Its end was counted, and the callbacks have run."""
    async with here.manager() as manager:
        batch = await with_callbacks(
            Batch([dispatch(shop.held, "m").expires(60).timeout(0.05).retries(0)])
        ).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
            shop.let_go("m")
            assert (await retry([derived_id(batch.id, 0)])).retried == 1
            await here.until(lambda: bool(here.counts("end")["m"]), "the second run")
            await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed, state.progress) == (1, 0, 1, 1.0)
        assert (len(here.notes("finally")), len(here.notes("catch")), here.notes("then")) == (1, 1, [])


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


async def test_cancel_on_failure_ends_what_is_delayed_and_stops_what_runs(here: Place) -> None:
    async with here.manager() as manager:
        members = [
            dispatch(shop.step, "long", 60.0).priority(1),
            dispatch(shop.broken, "bad").delay(0.2),
            dispatch(shop.step, "later").delay(3600),
        ]
        batch = await with_callbacks(Batch(members).cancel_on_failure()).send()
        async with workers(Worker(manager, lease=1)):
            await here.until(lambda: bool(here.notes("finally")), "the batch's end", within=10)
            await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed) == (3, 0, 3)
        assert here.counts("end") == {}
        assert len(here.notes("catch")) == 1


class Grow(Job, backoff=0.05):
    """Adds three members to its own batch; fails once after that."""

    async def handle(self) -> None:
        from nimbusq import current_job

        batch = await current_batch()
        await batch.add(*(shop.step.bind(f"added{n}") for n in range(3)))
        if current_job().attempt == 1:
            raise ValueError("once more")


async def test_members_added_from_inside_are_added_once(here: Place) -> None:
    async with here.manager() as manager:
        batch = await Batch([dispatch(Grow())]).finally_(shop.on_finally).send()
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


# --- crashes and outages -----------------------------------------------------------------------------------------


async def test_kills_around_the_last_settlement_count_the_member_once(shared: Place) -> None:
    """One worker dies before it reached the store: the member runs again. The next dies when the member is counted
    and the batch has ended with its callbacks (one step), and the reply is lost with it."""
    async with shared.manager() as manager:
        batch = await with_callbacks(Batch([shop.step.bind("m")])).send()
        shared.start("nursery", 1, LEASE=0.8, DIE="before:1,after:1", CONCURRENCY=1)
        await shared.until_empty(manager, within=15)
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed) == (1, 0, 0)
        assert shared.counts("end") == {"m": 2}
        for callback in ("then", "finally"):
            await assert_one_job(shared, manager, batch.id, callback)


async def test_a_callback_whose_worker_dies_runs_again_elsewhere(shared: Place) -> None:
    """The seed runs callbacks in the worker that counts the last member; they are lost with it."""
    async with shared.manager() as manager:
        await Batch([dispatch(shop.step, "m")]).finally_(shop.on_finally_dying).send()
        shared.start("nursery", 1, LEASE=0.8)
        await shared.until(lambda: len(shared.notes("finally")) == 2, "the second run", 10)
        await shared.until_empty(manager)
        assert len(shared.notes("finally")) == 2


async def test_a_callback_that_raises_is_retried_as_a_job(here: Place) -> None:
    """B46: the batch has ended, whatever its callbacks do."""
    async with here.manager() as manager:
        callback = dispatch(shop.flaky, "callback", 1)
        batch = await Batch([dispatch(shop.step, "m")]).then(callback).finally_(shop.on_finally).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert [line[3] for line in here.notes("start") if line[2] == "callback"] == ["1", "2"]
        assert here.counts("end") == {"m": 1, "callback": 1}
        assert len(here.notes("finally")) == 1
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed, state.finished) == (1, 0, 0, True)


async def test_a_lost_member_fails_with_its_catch(shared: Place) -> None:
    async with shared.manager() as manager:
        batch = await with_callbacks(Batch([dispatch(shop.suicidal, "m").retries(0)])).send()
        shared.start("nursery", 1, LEASE=0.8)
        await shared.until(lambda: bool(shared.notes("finally")), "the batch's end", 10)
        await shared.until_empty(manager)
        assert (await batch.refresh()).failed == 1
        assert [line[2:4] for line in shared.notes("catch")] == [[batch.id, derived_id(batch.id, 0)]]


async def test_a_producer_whose_store_fails_leaves_the_batch_open_and_may_send_it_again(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nimbusq.batch.CHUNK", 10)
    batch_id = new_id()

    def batch() -> Batch:
        return with_callbacks(Batch([shop.step.bind(f"m{n}") for n in range(50)], id=batch_id))

    async with here.manager() as manager:
        faults = Faults(FaultPlan(cut_after=3))  # the create and two chunks pass
        with pytest.raises(StoreUnavailable):
            await batch().send(Manager(FaultyAdapter(manager.adapter, faults), settings=manager.settings))
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
            open_one = await find_batch(batch_id)
            assert (open_one.state.total, open_one.state.pending, open_one.state.finished) == (20, 0, False)
            assert here.notes("finally") == []
            await batch().send()
            await here.until(lambda: bool(here.notes("finally")), "the batch's end")
            await here.until_empty(manager)
        assert here.counts("end") == {f"m{n}": 1 for n in range(50)}
        assert [line[3:] for line in here.notes("finally")] == [["50", "0", "0"]]


async def test_a_producer_whose_last_reply_is_lost_may_send_it_again_at_any_time(here: Place) -> None:
    """Sealed, running or finished: sent again under its id, a batch is found as it is and nothing runs twice."""
    batch_id = new_id()

    def batch() -> Batch:
        return with_callbacks(Batch([shop.step.bind(f"m{n}") for n in range(3)], id=batch_id))

    async with here.manager() as manager:
        await batch().send()
        waiting = (await batch().send()).state
        assert (waiting.total, waiting.pending) == (3, 3)
        async with workers(Worker(manager, lease=2)):
            await here.until(lambda: bool(here.notes("finally")), "the batch's end")
            again = (await batch().send()).state
            assert (again.total, again.pending, again.finished) == (3, 0, True)
            await here.until_empty(manager)
    assert here.counts("end") == {f"m{n}": 1 for n in range(3)}
    assert [line[3:] for line in here.notes("finally")] == [["3", "0", "0"]]


async def test_idle_workers_do_not_finish_a_batch_that_is_still_filled(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B16: four workers wait while the producer adds ten members at a time."""
    monkeypatch.setattr("nimbusq.batch.CHUNK", 10)
    async with here.manager() as manager, workers(*(Worker(manager, lease=2) for _ in range(4))):
        batch = with_callbacks(Batch(shop.step.bind(f"m{n}") for n in range(200)))
        assert (await batch.send()).state.total == 200
        await here.until(lambda: bool(here.notes("finally")), "the batch's end")
        await here.until_empty(manager)
    assert [line[3:] for line in here.notes("finally")] == [["200", "0", "0"]]
    last_end = max(float(line[0]) for line in here.notes("end"))
    assert float(here.notes("finally")[0][0]) > last_end


async def test_send_returns_without_a_worker_and_at_once(here: Place) -> None:
    async with here.manager() as manager:
        begin = time.monotonic()
        batch = await Batch([dispatch(shop.step, f"m{n}", 10.0) for n in range(21)]).send()
        assert time.monotonic() - begin < 1.0
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed, state.errors) == (21, 21, 0, ())
        assert (state.finished_at, state.progress) == (None, 0.0)
        assert state.created_at <= state.updated_at
        assert (state.name, state.cancelled, state.cancel_on_failure) == ("", False, False)
        view = await manager.require("jobs", "").get(derived_id(batch.id, 0))
        assert (view.queue, view.envelope.max_attempts, view.envelope.batch_id) == ("default", 4, batch.id)


async def test_without_a_manager_it_says_so() -> None:
    """A single send answers "disabled"; of a batch and of a chain there would be nothing to look at."""
    with pytest.raises(NoManager, match=r"nimbusq\.boot"):
        await Batch([dispatch(shop.step, "x")]).send()
    with pytest.raises(NoManager, match=r"nimbusq\.boot"):
        await Chain(dispatch(shop.step, "x")).send()


# --- options and control -----------------------------------------------------------------------------------------


async def test_the_batchs_options_count_where_a_member_asks_for_none(here: Place) -> None:
    async with here.manager() as manager:
        members = [
            dispatch(shop.step, "own").on_queue("own").priority(1).retries(9),
            dispatch(shop.step, "plain"),
        ]
        batch = await Batch(members).on_queue("bulk").priority(8).retries(1).send()
        views = [await manager.require("jobs", "").get(derived_id(batch.id, n)) for n in range(2)]
        found = [(view.queue, view.envelope.priority, view.envelope.max_attempts) for view in views]
        assert found == [("own", 1, 10), ("bulk", 8, 2)]


async def test_an_expired_member_counts_as_failed_without_a_catch(here: Place) -> None:
    async with here.manager() as manager:
        batch = await with_callbacks(Batch([dispatch(shop.step, "late").expires(0.05)])).send()
        await asyncio.sleep(0.1)
        async with workers(Worker(manager, lease=2)):
            await here.until(lambda: bool(here.notes("finally")), "the batch's end")
            await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.failed, state.errors) == (1, ("step: expired before it could start",))
        assert (here.notes("catch"), here.notes("then"), here.notes("start")) == ([], [], [])


async def test_cancel_reaches_running_members_and_chains(here: Place) -> None:
    async with here.manager() as manager:
        chain = Chain(
            dispatch(shop.step, "l0"), dispatch(shop.step, "l1").delay(3600), dispatch(shop.step, "l2")
        )
        batch = await with_callbacks(Batch([dispatch(shop.step, "long", 60.0), chain])).send()
        async with workers(Worker(manager, lease=1)):
            await here.until(
                lambda: bool(here.counts("end")["l0"] and here.counts("start")["long"]), "the starts"
            )
            async with asyncio.timeout(5):
                while (await manager.depth()).delayed != 1:
                    await asyncio.sleep(0.01)
            assert (await batch.cancel()).cancelled
            await here.until(lambda: bool(here.notes("finally")), "the batch's end", within=5)
            await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed) == (2, 0, 2)
        assert here.counts("start") == {"l0": 1, "long": 1}
        assert here.counts("end") == {"l0": 1}
        assert here.notes("catch") == []


async def test_on_the_inline_driver_send_runs_the_batch(tmp_path: Path) -> None:
    here = Place("sync://", tmp_path)
    async with here.manager():
        chain = Chain(dispatch(shop.step, "l0"), dispatch(shop.step, "l1"))
        members = [
            dispatch(shop.step, "a"),
            dispatch(shop.broken, "bad"),
            dispatch(shop.flaky, "f", 2),
            chain,
        ]
        batch = await with_callbacks(Batch(members)).send()
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed, state.finished) == (4, 0, 1, True)
        assert here.counts("end") == {"a": 1, "f": 1, "l0": 1, "l1": 1}
        assert (len(here.notes("catch")), len(here.notes("finally")), here.notes("then")) == (1, 1, [])


async def test_what_cannot_be_sent_is_refused(here: Place) -> None:
    async with here.manager() as manager:
        with pytest.raises(InvalidJob, match=r"then callback must be a Job.*work with run\(\) only"):
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


async def test_run_runs_as_many_at_once_as_it_may() -> None:
    running, most, calls = 0, 0, []

    @job
    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        raise ValueError("once")

    def caught(batch: BatchState, error: Exception) -> None:
        calls.append((batch.failed, str(error)))

    state = await Batch([busy.bind() for _ in range(10)]).catch(caught).run(concurrency=3)
    assert most == 3
    assert (state.failed, state.errors) == (10, ("once",) * 10)
    assert calls == [(n, "once") for n in range(1, 11)], "once a member, which runs once"


async def test_run_counts_fail_and_waits_for_releases() -> None:
    ran: list[str] = []

    @job
    async def gives_up() -> None:
        raise Fail("enough")

    @job
    async def waits() -> None:
        ran.append("waits")
        if len(ran) < 3:
            raise Release(0.01)

    state = await Batch([gives_up.bind(), waits.bind()]).run()
    assert (state.total, state.pending, state.failed) == (2, 0, 1)
    assert ran == ["waits"] * 3
    assert state.finished_at is not None
    assert abs(state.finished_at - time.time()) < 5
