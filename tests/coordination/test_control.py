"""Steering single jobs and queues: cancel, pause, explain, results, progress, history."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from nimbusq import (
    Batch,
    Fail,
    Job,
    JobCancelled,
    JobFailed,
    Manager,
    Receipt,
    Release,
    ResultExpired,
    Worker,
    current_job,
    dispatch,
    job,
)
from nimbusq.clear import clear
from nimbusq.control import Explanation, explain
from nimbusq.driver import JobView, WorkerReport
from nimbusq.errors import JobNotFound
from nimbusq.limit import RateLimit
from nimbusq.receipt import cancel
from nimbusq.worker import report
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop


async def view_of(receipt: Receipt[Any]) -> JobView:
    view = await receipt.refresh()
    assert view is not None
    return view


async def gates(job_id: str) -> list[str]:
    return [gate.gate for gate in (await explain(job_id)).gates]


# --- cancel (B66) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 3600])
async def test_a_queued_job_is_cancelled_at_once(here: Place, delay: float) -> None:
    async with here.manager() as manager:
        receipt = await dispatch(shop.step, "x").delay(delay).unique("k").send()
        assert await receipt.cancel()
        view = await view_of(receipt)
        assert (view.state, view.error) == ("cancelled", "cancelled by request")
        assert not await receipt.cancel(), "it has ended"
        assert (await manager.depth()).pending == (await manager.depth()).delayed == 0
        assert (await dispatch(shop.step, "x").unique("k").send()).status == "queued"
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
    assert here.counts("start") == {"x": 1}


async def test_a_running_job_hears_of_its_cancel_within_a_third_of_the_lease(here: Place) -> None:
    cancelled: list[float] = []

    @job(retries=3)
    async def endless() -> None:
        shop.note("start", "endless")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(time.monotonic())
            assert current_job().cancel_requested
            raise

    async with here.manager() as manager:
        receipt = await dispatch(endless).send()
        async with workers(Worker(manager, lease=1.5)):
            await here.until(lambda: bool(here.counts("start")), "the start")
            asked = time.monotonic()
            assert await receipt.cancel()
            assert await receipt.cancel(), "asking again changes nothing"
            await here.until_empty(manager, within=5)
            with pytest.raises(JobCancelled):
                await receipt.result(timeout=5)
            assert not await receipt.cancel()
    assert len(cancelled) == 1
    assert cancelled[0] - asked < 1.5 / 3 + 1.0
    assert here.counts("start") == {"endless": 1}, "a cancelled job is not retried"


async def test_a_job_that_waits_for_its_retry_is_cancelled(here: Place) -> None:
    @job(backoff=3600)
    async def fails() -> None:
        shop.note("start", "fails")
        raise ValueError("once")

    async with here.manager() as manager:
        receipt = await dispatch(fails).send()
        async with workers(Worker(manager, lease=2)):
            await here.until(lambda: bool(here.counts("start")), "the first run")
            async with asyncio.timeout(5):
                while (await view_of(receipt)).state != "delayed":
                    await asyncio.sleep(0.01)
            assert await receipt.cancel()
        view = await view_of(receipt)
        assert (view.state, view.attempt) == ("cancelled", 1)
        assert (await manager.depth()).delayed == 0


async def test_ended_and_unknown_jobs_cannot_be_cancelled(here: Place) -> None:
    async with here.manager() as manager:
        done = await dispatch(shop.step, "x").send()
        failed = await dispatch(shop.broken, "y").send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert not await done.cancel()
        assert not await failed.cancel()
        assert not await cancel(manager, "0198f3c2-0000-7000-8000-000000000000")
        assert (await view_of(done)).state == "done"
        assert (await view_of(failed)).state == "failed"


async def test_a_cancelled_job_may_say_that_it_was_done_all_the_same(here: Place) -> None:
    @job
    async def stubborn() -> str:
        shop.note("start", "stubborn")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "finished first"
        return "slept"

    async with here.manager() as manager:
        receipt = await dispatch(stubborn).send()
        async with workers(Worker(manager, lease=1)):
            await here.until(lambda: bool(here.counts("start")), "the start")
            assert await receipt.cancel()
            assert await receipt.result(timeout=5) == "finished first"


async def test_a_cleared_queue_has_ended_each_of_its_jobs(here: Place) -> None:
    async with here.manager() as manager:
        unique = await dispatch(shop.step, "unique").unique("k").on_queue("old").send()
        later = await dispatch(shop.step, "later").delay(3600).on_queue("old").send()
        paused = await dispatch(shop.step, "paused").on_queue("old").send()
        await manager.require("jobs", "").pause(paused.id)
        batch = await Batch([dispatch(shop.step, f"m{n}") for n in range(3)]).on_queue("old").send()
        other = await dispatch(shop.step, "other").send()
        assert await clear("old") == 6
        depth = await manager.depth("old")
        assert (depth.pending, depth.delayed, depth.running) == (0, 0, 0)
        for receipt in (unique, later, paused):
            view = await view_of(receipt)
            assert (view.state, view.error) == ("cancelled", "the queue was cleared")
        assert (await view_of(other)).state == "ready"
        state = await batch.refresh()
        assert (state.total, state.failed, state.finished) == (3, 3, True)
        assert (await dispatch(shop.step, "unique").unique("k").send()).status == "queued"
        assert await clear("old") == 0


# --- pause -------------------------------------------------------------------------------------------------------


async def test_a_paused_job_runs_once_it_is_resumed(here: Place) -> None:
    async with here.manager() as manager:
        jobs = manager.require("jobs", "")
        receipt = await dispatch(shop.step, "x").send()
        assert await jobs.pause(receipt.id)
        assert (await view_of(receipt)).state == "paused"
        async with workers(Worker(manager, lease=2)):
            await dispatch(shop.step, "other").send()
            await here.until(lambda: bool(here.counts("end")["other"]), "the other job's end")
            assert here.counts("start") == {"other": 1}
            assert await jobs.resume(receipt.id)
            await here.until(lambda: bool(here.counts("end")["x"]), "the resumed job's end", within=10)
        assert not await jobs.pause(receipt.id), "it has ended"
        assert not await jobs.resume(receipt.id)


async def test_a_paused_queue_takes_jobs_and_starts_none(here: Place) -> None:
    async with here.manager() as manager:
        jobs = manager.require("jobs", "")
        assert await jobs.pause_queue("mail")
        assert list(await jobs.paused_queues()) == ["mail"]
        await dispatch(shop.step, "mail").on_queue("mail").send()
        await dispatch(shop.step, "other").send()
        async with workers(Worker(manager, ["mail", "default"], lease=2)):
            await here.until(lambda: bool(here.counts("end")["other"]), "the other queue's job")
            assert (await manager.depth("mail")).pending == 1
            resumed = time.monotonic()
            assert await jobs.resume_queue("mail")
            await here.until(lambda: bool(here.counts("end")["mail"]), "the resumed queue's job")
            assert time.monotonic() - resumed < 3.0
        assert list(await jobs.paused_queues()) == []


# --- explain -----------------------------------------------------------------------------------------------------


async def test_each_gate_is_named(here: Place) -> None:
    async with here.manager() as manager:
        jobs = manager.require("jobs", "")
        ready = await dispatch(shop.step, "x").send()
        assert await gates(ready.id) == ["worker"]
        assert (await explain(ready.id)).gates[0].text == "no worker serves queue default"

        await join(manager, names=("broken",))
        (gate,) = (await explain(ready.id)).gates
        assert gate.text == "none of the 1 workers of queue default knows a job 'step'"

        await join(manager, names=("step",), running={"a": {}})
        (gate,) = (await explain(ready.id)).gates
        assert (gate.gate, gate.text) == ("position", "all slots of the 1 workers of queue default are taken")

        await join(manager, names=("step",))
        assert await explain(ready.id) == Explanation(ready.id, "ready")

        later = await dispatch(shop.step, "y").delay(3600).send()
        (gate,) = (await explain(later.id)).gates
        assert gate.gate == "due"
        assert gate.text.endswith("as it was sent")

        await jobs.pause(later.id)
        await jobs.pause_queue("default")
        assert await gates(later.id) == ["paused", "queue paused"]
        assert (await explain(later.id)).state == "paused"
        assert await gates(ready.id) == ["queue paused"]


async def join(manager: Manager, *, names: tuple[str, ...], running: dict[str, Any] | None = None) -> None:
    """A worker of one slot reports."""
    await manager.require("workers", "").report(
        WorkerReport(
            id="w",
            host="h",
            pid=1,
            queues=("default",),
            concurrency=1,
            started_at=0.0,
            names=names,
            running=running or {},
        )
    )


async def test_waiting_after_a_failed_run_or_a_release_is_told(here: Place) -> None:
    @job(backoff=3600)
    async def fails() -> None:
        raise ValueError("once")

    @job
    async def waits() -> None:
        raise Release(3600)

    async with here.manager() as manager:
        failing, waiting = await dispatch(fails).send(), await dispatch(waits).send()
        async with workers(Worker(manager, lease=2)), asyncio.timeout(10):
            while (await manager.depth()).delayed != 2:
                await asyncio.sleep(0.02)
            (after_failure,) = (await explain(failing.id)).gates
            (after_release,) = (await explain(waiting.id)).gates
        assert after_failure.text.endswith("after a failed run")
        assert after_release.text.endswith("after it was put back")


async def test_holders_of_keys_and_rates_are_told(here: Place) -> None:
    async with here.manager(rate_limits={"slow": RateLimit(per_second=2.5)}) as manager:
        async with workers(Worker(manager, lease=2, concurrency=2)):
            holder = await dispatch(shop.held, "holder").without_overlapping("k").send()
            await here.until(lambda: bool(here.counts("start")), "the holder's start")
            blocked = (
                await dispatch(shop.held, "blocked")
                .without_overlapping("k", release_after=60)
                .delay(0.01)
                .send()
            )
            async with asyncio.timeout(5):
                while "overlap" not in await gates(blocked.id):
                    await asyncio.sleep(0.01)
            texts = {gate.gate: gate.text for gate in (await explain(blocked.id)).gates}
            assert texts["overlap"] == f"overlap key 'k' is held by {holder.id}"
            assert (await explain(holder.id)).state == "leased"
            assert (await explain(holder.id)).gates == ()
            await blocked.cancel()
            shop.let_go("holder")
            await here.until_empty(manager)
        await join(manager, names=("step",))
        limited = await dispatch(shop.step, "x").on_queue("slow").rate_limit("api", 0.5).send()
        texts = [gate.text for gate in (await explain(limited.id)).gates if gate.gate == "rate"]
        assert texts == [
            "queue slow starts at most 2.5 jobs a second",
            "rate key 'key:api' starts at most 0.5 jobs a second",
        ]


@pytest.mark.parametrize("mode", ["slot", "lock"])
async def test_a_failed_job_names_the_holder_of_its_unique_key(here: Place, mode: str) -> None:
    def unique(name: str) -> Any:
        builder = dispatch(shop.broken, name)
        return builder.unique("k") if mode == "slot" else builder.unique_for(60, key="k")

    async with here.manager() as manager:
        failed = await unique("first").send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert await gates(failed.id) == []
        holder = await unique("second").send()
        assert holder.status == "queued"
        explanation = await explain(failed.id)
        assert explanation.state == "failed"
        (gate,) = explanation.gates
        assert gate.gate == "unique"
        assert gate.text == f"unique key 'k' is held by {holder.id}: until it ends a retry is refused"


async def test_an_unknown_job_cannot_be_explained(here: Place) -> None:
    async with here.manager():
        with pytest.raises(JobNotFound, match="knows no job"):
            await explain("unknown")


# --- results -----------------------------------------------------------------------------------------------------


class Add(Job):
    left: int
    right: int

    async def handle(self) -> int:
        return self.left + self.right


async def test_results_of_every_kind_of_end(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    @job
    async def large() -> str:
        return "x" * (64 * 1024)

    @job
    async def gives_up() -> None:
        raise Fail("no such account")

    async with here.manager() as manager:
        gone = await dispatch(Add(left=1, right=2)).expires(0.05).send()
        await asyncio.sleep(0.1)
        added = await dispatch(Add(left=1, right=2)).send()
        nothing = await dispatch(shop.step, "x").send()
        failed = await dispatch(shop.broken, "why").send()
        given_up = await dispatch(gives_up).send()
        too_large = await dispatch(large).send()
        never = await dispatch(Add(left=1, right=2)).on_queue("nobody").send()
        with pytest.raises(TimeoutError, match=r"had not ended after 0\.05 s"):
            await added.result(timeout=0.05)
        async with workers(Worker(manager, lease=2)):
            assert await added.result(timeout=10) == 3
            assert await added.result(timeout=10) == 3, "it may be asked again"
            assert await nothing.result(timeout=10) is None
            with pytest.raises(JobFailed, match="ValueError: why") as told:
                await failed.result(timeout=10)
            assert told.value.job_id == failed.id
            with pytest.raises(JobFailed, match="no such account"):
                await given_up.result(timeout=10)
            with pytest.raises(JobCancelled, match="expired before it could start"):
                await gone.result(timeout=10)
            with pytest.raises(ResultExpired, match="its result has 65,538 bytes, at most 65,536 are kept"):
                await too_large.result(timeout=10)
        await never.cancel()
        with pytest.raises(JobCancelled, match="cancelled by request"):
            await never.result(timeout=10)
        assert "its result has 65,538 bytes" in caplog.text


async def test_a_result_is_awaited_while_the_job_still_waits(here: Place) -> None:
    async with here.manager() as manager:
        receipt = await dispatch(Add(left=2, right=3)).delay(0.3).send()
        async with workers(Worker(manager, lease=2)):
            assert await receipt.result() == 5


async def test_a_result_is_kept_for_an_hour(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        receipt = await dispatch(Add(left=2, right=3)).send()
        async with workers(Worker(manager, lease=2)):
            assert await receipt.result(timeout=10) == 5
        await advance(3590)
        assert await receipt.result(timeout=1) == 5
        await advance(20)
        with pytest.raises(ResultExpired, match="its result has expired"):
            await receipt.result(timeout=1)


async def test_a_failure_is_known_for_as_long_as_its_record_is_kept(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        receipt = await dispatch(shop.broken, "why").send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        await advance(30 * 86_400)
        with pytest.raises(JobFailed, match="why"):
            await receipt.result(timeout=1)


# --- progress, tags, history ---------------------------------------------------------------------------------------


async def test_progress_is_seen_in_the_workers_report(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "PERIOD", 0.05)

    seen_it = asyncio.Event()

    @job
    async def counts() -> None:
        current_job().progress(3, 10, file="a.csv")
        await seen_it.wait()

    async with here.manager() as manager:
        receipt = await dispatch(counts).send()
        async with workers(Worker(manager, lease=2)), asyncio.timeout(10):
            while not (seen := await progress_of(manager, receipt.id)):
                await asyncio.sleep(0.02)
            assert seen == {"done": 3, "total": 10, "file": "a.csv"}
            seen_it.set()
            await here.until_empty(manager)
        assert await manager.require("workers", "").list() == [], "a worker that stopped has left"
        assert (await manager.require("workers", "").totals())["default"]["processed"] == 1


async def progress_of(manager: Manager, job_id: str) -> Any:
    for worker in await manager.require("workers", "").list():
        if job_id in worker.running:
            return worker.running[job_id].get("progress")
    return None


class Tagged(Job, tags=("class",), silenced=True):
    account: int

    async def handle(self) -> None: ...

    def tags(self) -> tuple[str, ...]:
        return (f"account:{self.account}",)


async def test_tags_and_silence_are_in_the_history(here: Place) -> None:
    async with here.manager() as manager:
        await dispatch(Tagged(account=7)).tags("sent").send()
        loud = await dispatch(shop.step, "x").send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        rows, _ = await manager.require("history", "").page()
        by_name = {row.name: row for row in rows}
        assert by_name["Tagged"].tags == ("class", "account:7", "sent")
        assert (by_name["Tagged"].silenced, by_name["step"].silenced) == (True, False)
        assert by_name["step"].id == loud.id
        assert by_name["step"].tags == ()
        assert by_name["step"].attempt == 1


async def test_a_history_of_nothing_keeps_nothing(here: Place) -> None:
    async with here.manager(history_limit=0) as manager:
        await dispatch(shop.step, "x").send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert (await manager.require("history", "").page())[0] == []
