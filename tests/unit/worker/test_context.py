"""Each run stands alone: nothing leaks from the sender, the worker's own surroundings, or another job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest

from nimbusq import Job, Manager, NimbusqError, Worker, current_job, dispatch, dispatch_many, get_manager
from nimbusq.context import JobContext
from nimbusq.middleware import Middleware
from tests.unit.worker.bench import Bench, until

mark: ContextVar[str] = ContextVar("mark", default="clean")


async def test_no_run_sees_what_another_has_set(bench: Bench) -> None:
    """B65: a thousand jobs at concurrency 50, in the loop and in threads."""
    seen: list[str] = []

    class Dirty(Job):
        async def handle(self) -> None:
            seen.append(mark.get())
            mark.set("dirty")
            await asyncio.sleep(0)

    class DirtyThread(Job):
        def handle(self) -> None:
            seen.append(mark.get())
            mark.set("dirty")

    mark.set("the worker's own")
    await dispatch_many([DirtyThread() if n % 10 == 0 else Dirty() for n in range(1000)])
    async with bench.working(concurrency=50):
        await until(lambda: len(seen) == 1000)
    assert seen == ["clean"] * 1000


async def test_a_job_sends_to_the_manager_whose_worker_runs_it() -> None:
    """The manager is nobody's default here, and not current in the task that runs the worker either."""
    manager = Manager("memory://")
    await manager.open()
    seen: list[Manager] = []

    class Child(Job):
        async def handle(self) -> str:
            return "child"

    class Parent(Job):
        async def handle(self) -> str:
            seen.append(get_manager())
            return (await dispatch(Child()).send()).status

    class ParentThread(Job):
        def handle(self) -> str:
            seen.append(get_manager())
            return "thread"

    receipts = await dispatch_many([Parent(), ParentThread()], manager=manager)
    worker = Worker(manager)
    running = asyncio.create_task(worker.run())
    assert [await receipt.result(timeout=5) for receipt in receipts] == ["queued", "thread"]
    worker.stop()
    await running
    await manager.aclose()
    assert seen == [manager, manager]


async def test_what_a_run_can_know_of_itself(bench: Bench) -> None:
    class Curious(Job, retries=4, tags=["a"], queue="q"):
        async def handle(self) -> list[object]:
            me = current_job()
            return [
                me.id,
                me.name,
                me.queue,
                me.attempt,
                me.max_attempts,
                me.releases,
                me.fence,
                list(me.tags),
            ]

    receipt = await dispatch(Curious()).tags("b").send()
    async with bench.working("q"):
        known = await receipt.result(timeout=5)
    assert known == [receipt.id, "Curious", "q", 1, 5, 0, 1, ["a", "b"]]


async def test_the_fence_rises_with_every_claim(bench: Bench) -> None:
    fences: list[int] = []

    class Again(Job, backoff=0):
        async def handle(self) -> None:
            fences.append(current_job().fence)
            raise ValueError

    await dispatch(Again()).retries(2).send()
    async with bench.working():
        await until(lambda: len(fences) == 3)
    assert fences == [1, 2, 3]


def test_outside_a_job_there_is_no_current_one() -> None:
    with pytest.raises(NimbusqError, match="only while a job runs"):
        current_job()


async def test_the_jobs_log_is_stamped(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    class Chatty(Job):
        async def handle(self) -> None:
            current_job().log.warning("hello %s", "there", extra={"more": 1})

    receipt = await dispatch(Chatty()).send()
    await bench.worker().run_once()
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    stamps = {name: getattr(record, name) for name in ("job_id", "job_name", "queue", "attempt", "more")}
    assert stamps == {
        "job_id": receipt.id,
        "job_name": "Chatty",
        "queue": "default",
        "attempt": 1,
        "more": 1,
    }
    assert record.getMessage() == "hello there"


async def test_progress_is_reported(bench: Bench) -> None:
    shown, go_on = asyncio.Event(), asyncio.Event()

    class Long(Job):
        async def handle(self) -> None:
            current_job().progress(3, 10, file="a.csv")
            shown.set()
            await go_on.wait()

    receipt = await dispatch(Long()).send()
    async with bench.working() as worker:
        await shown.wait()
        running = worker.report().running[receipt.id]
        assert running["progress"] == {"done": 3, "total": 10, "file": "a.csv"}
        assert (running["name"], running["attempt"]) == ("Long", 1)
        go_on.set()


@pytest.mark.parametrize("details", [{"x": object()}, {"x": float("nan")}, {"x": "\ud800"}])
async def test_progress_that_cannot_be_stored_is_the_jobs_own_error(
    bench: Bench, details: dict[str, object]
) -> None:
    """It must not reach the worker's report, which it would end with the worker."""
    errors: list[Exception] = []

    class Odd(Job, retries=0):
        async def handle(self) -> None:
            current_job().progress(1, **details)

        def failed(self, error: Exception) -> None:
            errors.append(error)

    await dispatch(Odd()).send()
    await bench.worker().run_once()
    assert isinstance(errors[0], ValueError | TypeError)
    assert "progress" in str(errors[0])


# --- middleware ------------------------------------------------------------------------------------------------


class Layer(Middleware):
    def __init__(self, name: str, steps: list[str]) -> None:
        self.name = name
        self.steps = steps

    @asynccontextmanager
    async def around_run(self, context: JobContext) -> AsyncIterator[None]:
        assert current_job() is context
        self.steps.append(f"{self.name} in")
        try:
            yield
        except ValueError:
            self.steps.append(f"{self.name} error")
            raise
        finally:
            self.steps.append(f"{self.name} out")


async def test_middleware_stands_around_the_run_outermost_first() -> None:
    steps: list[str] = []
    bench = Bench(middleware=[Layer("outer", steps), Layer("inner", steps)])

    class Step(Job, retries=0):
        async def handle(self) -> None:
            steps.append("handle")
            raise ValueError

    async with bench.manager:
        await dispatch(Step()).send()
        await bench.worker().run_once()
    assert steps == ["outer in", "inner in", "handle", "inner error", "inner out", "outer error", "outer out"]


async def test_middleware_that_raises_first_fails_the_run_and_leaves_what_was_entered() -> None:
    steps: list[str] = []

    class Closed(Middleware):
        @asynccontextmanager
        async def around_run(self, context: JobContext) -> AsyncIterator[None]:
            raise PermissionError("closed")
            yield

    bench = Bench(middleware=[Layer("outer", steps), Closed()])

    class Never(Job, retries=0):
        async def handle(self) -> None:
            raise AssertionError("it must not run")

    async with bench.manager:
        receipt = await dispatch(Never()).send()
        await bench.worker().run_once()
        assert (await bench.view(receipt.id)).error == "PermissionError: closed"
    assert steps == ["outer in", "outer out"]
