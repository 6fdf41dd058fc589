"""`failed()` and observers: told once, after the store knows, and harmless whatever they do."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from nimbusq import Fail, Job, Observer, Release, current_job, dispatch, dispatch_many, get_manager
from nimbusq.driver import Claim
from nimbusq.errors import Interrupted, JobFailed, JobTimeout, WorkerLost
from nimbusq.observe import Observers
from tests.unit.worker.bench import Bench, Diary, happens, until


async def test_failed_is_called_once_after_the_last_run(bench: Bench) -> None:
    """JD2."""
    calls: list[tuple[str, str, str]] = []

    class Broken(Job, retries=3):
        async def handle(self) -> None:
            raise ValueError("no")

        async def failed(self, error: Exception) -> None:
            view = await bench.view(current_job().id)
            assert get_manager() is bench.manager
            calls.append((repr(error), view.state, current_job().id))

    receipt = await dispatch(Broken()).send()
    for _ in range(6):
        await bench.worker().run_once()
        await bench.advance(700)
    assert calls == [("ValueError('no')", "failed", receipt.id)], "the failed store is written first"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("no use", JobFailed), (KeyError("gone"), KeyError)],
)
async def test_failed_hears_the_reason_of_a_fail(bench: Bench, reason: Any, kind: type[Exception]) -> None:
    errors: list[Exception] = []

    class Hopeless(Job):
        async def handle(self) -> None:
            raise Fail(reason)

        def failed(self, error: Exception) -> None:
            errors.append(error)

    await dispatch(Hopeless()).send()
    await bench.worker().run_once()
    assert [type(error) for error in errors] == [kind]


async def test_failed_hears_of_an_interruption_and_of_a_time_out(bench: Bench) -> None:
    begun = asyncio.Event()
    errors: list[Exception] = []

    class Endless(Job, retries=0):
        async def handle(self) -> None:
            begun.set()
            await asyncio.Event().wait()

        def failed(self, error: Exception) -> None:
            errors.append(error)

    await dispatch(Endless()).timeout(0.02).send()
    await bench.worker().run_once()
    begun.clear()
    await dispatch(Endless()).send()
    async with bench.working(grace=0.0):
        await happens(begun)
    assert [type(error) for error in errors] == [JobTimeout, Interrupted]


async def test_failed_is_called_for_a_job_whose_last_worker_was_lost(bench: Bench) -> None:
    """WK5: by the worker that ends it, though it never ran there."""
    errors: list[Exception] = []
    ran: list[int] = []

    class Poison(Job, retries=1):
        n: int

        async def handle(self) -> None:
            ran.append(self.n)

        def failed(self, error: Exception) -> None:
            errors.append(error)

    receipt = await dispatch(Poison(n=1)).send()
    for _ in range(2):
        await bench.claim(lease=10)
        await bench.advance(10)
    await bench.worker().run_once()
    assert [type(error) for error in errors] == [WorkerLost]
    assert "in run 2, the last one" in str(errors[0])
    assert ran == []
    assert (await bench.view(receipt.id)).state == "failed"


async def test_failed_is_not_called_by_a_worker_whose_outcome_was_refused(bench: Bench) -> None:
    begun, ends = asyncio.Event(), asyncio.Event()
    errors: list[Exception] = []

    class Late(Job, retries=1, backoff=0):
        async def handle(self) -> None:
            begun.set()
            await ends.wait()
            raise Fail("too late")

        def failed(self, error: Exception) -> None:
            errors.append(error)

    await dispatch(Late()).send()
    async with bench.working(lease=60.0) as worker:
        await happens(begun)
        worker.stop()
        await bench.steal(60.0)
        ends.set()
    assert errors == []


@pytest.mark.parametrize("how", ["raises", "hangs", "cancels itself", "releases", "exits"])
async def test_a_broken_hook_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """B46: the job is stored as failed, its unique slot is free, the next job runs at once."""
    monkeypatch.setattr("nimbusq.worker.aftermath.HOOK_PATIENCE", 0.2)
    done = asyncio.Event()

    class Broken(Job, retries=0):
        async def handle(self) -> None:
            raise ValueError("no")

        async def failed(self, error: Exception) -> None:
            match how:
                case "raises":
                    raise RuntimeError("hook")
                case "hangs":
                    await asyncio.Event().wait()
                case "cancels itself":
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    await asyncio.sleep(0)
                case "releases":
                    raise Release(1)
                case _:
                    raise SystemExit(1)

    class Next(Job):
        async def handle(self) -> None:
            done.set()

    receipt = await dispatch(Broken()).unique("k").send()
    async with bench.working() as worker:
        await until(lambda: any(bench.adapter.settlements))
        before = time.monotonic()
        await dispatch(Next()).send()
        await happens(done)
        assert time.monotonic() - before < 1
        await until(lambda: worker.counters["default"].get("hook_errors") == 1)
    assert (await bench.view(receipt.id)).state == "failed"
    assert (await dispatch(Broken()).unique("k").send()).status == "queued"
    assert f"failed() of job {receipt.id}" in caplog.text


# --- observers -------------------------------------------------------------------------------------------------


class Broken(Observer):
    """Raises at every event."""

    def __init__(self) -> None:
        self.heard: set[str] = set()

    def _fail(self, event: str) -> None:
        self.heard.add(event)
        raise RuntimeError(event)

    def dispatched(self, envelope: object) -> None:
        self._fail("dispatched")

    def started(self, claim: Claim) -> None:
        self._fail("started")

    async def processed(self, claim: Claim, duration: float, error: str | None) -> None:
        self._fail("processed")

    def retried(self, claim: Claim, delay: float, error: str) -> None:
        self._fail("retried")

    def released(self, claim: Claim, delay: float) -> None:
        self._fail("released")

    def cancelled(self, claim: Claim, reason: str) -> None:
        self._fail("cancelled")

    async def reclaimed(self, lost: object) -> None:
        self._fail("reclaimed")


async def test_an_observer_that_raises_at_every_event_changes_nothing(bench: Bench) -> None:
    bench.manager.observers.add(broken := Broken())
    bench.manager.observers.add(diary := Diary())
    lost = await bench.push("Elsewhere", max_attempts=1)
    await bench.claim(lease=1)
    await bench.advance(1)

    class Eventful(Job, retries=1, backoff=0):
        async def handle(self) -> str:
            if not current_job().releases:
                raise Release(0)
            if current_job().attempt == 1:
                raise ValueError("once")
            return "done"

    expired = await dispatch(Eventful()).expires(1).delay(5).send()
    receipt = await dispatch(Eventful()).send()
    await bench.advance(5)
    async with bench.working():
        assert await receipt.result(timeout=5) == "done"
        await until(lambda: len(diary.heard) == 5)
    assert broken.heard == {
        "dispatched", "started", "processed", "retried", "released", "cancelled", "reclaimed",
    }  # fmt: skip
    assert sorted(event for event, _ in diary.heard) == [
        "cancelled", "processed", "processed", "released", "retried",
    ]  # fmt: skip
    assert [(await bench.view(job_id)).state for job_id in (lost, expired.id)] == ["failed", "cancelled"]


async def test_an_observer_that_hangs_costs_no_lease(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cut off, and left out for a while, so that a hundred jobs do not wait a hundred times."""
    monkeypatch.setattr("nimbusq.observe.observers.PATIENCE", 0.1)

    class Hanging(Observer):
        async def processed(self, claim: Claim, duration: float, error: str | None) -> None:
            await asyncio.Event().wait()

        async def started(self, claim: Claim) -> None:
            await asyncio.Event().wait()

    bench.manager.observers.add(Hanging())
    bench.manager.observers.add(diary := Diary())

    class Quick(Job):
        async def handle(self) -> None: ...

    await dispatch_many([Quick() for _ in range(100)])
    before = time.monotonic()
    async with bench.working(concurrency=10, lease=1.0):
        await until(lambda: len(diary.heard) == 100)
    assert time.monotonic() - before < 1.0
    events = [event for event, *_ in await bench.store.audit()]
    assert (events.count("lost"), events.count("done")) == (0, 100)
    assert caplog.text.count("an observer failed") <= 10 + 1, "ten runs waited for it at the same time"


async def test_a_hanging_observer_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nimbusq.observe.observers.PATIENCE", 0.01)
    monkeypatch.setattr("nimbusq.observe.observers.LEFT_OUT", 0.05)
    calls: list[int] = []

    class Hanging(Observer):
        async def reclaimed(self, lost: object) -> None:
            calls.append(1)
            if len(calls) == 1:
                await asyncio.Event().wait()

    observers = Observers([Hanging()])
    await observers.tell("reclaimed", [])
    await observers.tell("reclaimed", [])
    assert len(calls) == 1
    await asyncio.sleep(0.06)
    await observers.tell("reclaimed", [])
    assert len(calls) == 2
