"""The sync driver: send() runs the job before it returns, on the same path as a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest

from nimbusq import Fail, Job, Manager, Observer, Release, current_job, dispatch, dispatch_many, get_manager
from nimbusq.batch import Batch
from nimbusq.chain import Chain
from nimbusq.context import JobContext
from nimbusq.driver import Claim
from nimbusq.envelope import Envelope
from nimbusq.errors import JobTimeout
from nimbusq.middleware import Middleware

mark: ContextVar[str] = ContextVar("mark", default="clean")


@pytest.fixture
async def manager() -> AsyncIterator[Manager]:
    async with Manager("sync") as manager:
        yield manager


async def depth(manager: Manager) -> tuple[int | None, int | None, int | None]:
    found = await manager.depth()
    return found.pending, found.delayed, found.running


async def test_it_has_run_when_send_returns(manager: Manager) -> None:
    class Double(Job):
        n: int

        async def handle(self) -> int:
            return 2 * self.n

    receipt = await dispatch(Double(n=4)).send()
    assert (receipt.status, receipt.via) == ("done", "sync")
    assert await receipt.result(timeout=1) == 8
    receipts = await dispatch_many([Double(n=n) for n in range(5)])
    assert [receipt.status for receipt in receipts] == ["done"] * 5
    assert await depth(manager) == (0, 0, 0)


async def test_delays_and_back_offs_are_not_slept(manager: Manager) -> None:
    runs: list[int] = []

    class Broken(Job, retries=3, backoff=600):
        async def handle(self) -> None:
            runs.append(current_job().attempt)
            raise ValueError(f"run {current_job().attempt}")

        async def failed(self, error: Exception) -> None:
            runs.append(-1)

    before = time.monotonic()
    with pytest.raises(ValueError, match="run 4"):
        await dispatch(Broken()).delay(3600).send()
    assert time.monotonic() - before < 1
    assert runs == [1, 2, 3, 4, -1], "the last error comes after failed()"
    failed, _ = await manager.require("failed", "failed jobs").page()
    assert [record.error for record in failed] == ["ValueError: run 4"]


async def test_a_job_that_succeeds_at_last_raises_nothing(manager: Manager) -> None:
    class Shaky(Job, retries=2):
        async def handle(self) -> int:
            if current_job().attempt < 3:
                raise ValueError
            return current_job().attempt

    assert await (await dispatch(Shaky()).send()).result(timeout=1) == 3


async def test_fail_is_raised_to_the_sender(manager: Manager) -> None:
    class Hopeless(Job):
        async def handle(self) -> None:
            raise Fail(LookupError("no such user"))

    with pytest.raises(LookupError, match="no such user"):
        await dispatch(Hopeless()).send()


async def test_a_released_job_stays_queued(manager: Manager) -> None:
    class Later(Job):
        async def handle(self) -> None:
            raise Release(0)

    receipt = await dispatch(Later()).send()
    assert receipt.status == "queued"
    assert await depth(manager) == (0, 1, 0)


async def test_a_blocked_job_stays_queued_and_does_not_hide_others(manager: Manager) -> None:
    ran: list[str] = []

    class Other(Job):
        async def handle(self) -> None:
            ran.append("other")

    class Blocked(Job):
        depth: int = 0

        async def handle(self) -> str:
            ran.append(f"blocked {self.depth}")
            if self.depth:
                return "never"
            inner = await dispatch(Blocked(depth=1)).without_overlapping("k").send()
            await dispatch(Other()).on_queue("other").send()
            return inner.status

    receipt = await dispatch(Blocked()).without_overlapping("k").send()
    assert await receipt.result(timeout=1) == "queued"
    assert ran == ["blocked 0", "other"]


async def test_a_time_limit_is_kept(manager: Manager) -> None:
    class Slow(Job, timeout=0.02, retries=0):
        async def handle(self) -> None:
            await asyncio.Event().wait()

    with pytest.raises(JobTimeout, match=r"0\.02 s"):
        await dispatch(Slow()).send()


async def test_a_job_may_send_another(manager: Manager) -> None:
    order: list[str] = []

    class Parent(Job):
        async def handle(self) -> str:
            order.append("parent begins")
            assert get_manager() is manager
            child = await dispatch(Child()).send()
            order.append("parent ends")
            return child.status

    class Child(Job):
        async def handle(self) -> None:
            order.append("child")

    receipt = await dispatch(Parent()).send()
    assert await receipt.result(timeout=1) == "done"
    assert order == ["parent begins", "child", "parent ends"]


async def test_plain_functions_run_in_a_thread(manager: Manager) -> None:
    class Blocking(Job):
        def handle(self) -> str:
            time.sleep(0.01)
            return current_job().id

    receipt = await dispatch(Blocking()).send()
    assert await receipt.result(timeout=1) == receipt.id


async def test_each_run_has_a_context_of_its_own(manager: Manager) -> None:
    class Dirty(Job):
        async def handle(self) -> str:
            seen = mark.get()
            mark.set("dirty")
            return seen

    mark.set("the sender's")
    receipts = [await dispatch(Dirty()).send() for _ in range(3)]
    assert [await receipt.result(timeout=1) for receipt in receipts] == ["clean"] * 3
    assert mark.get() == "the sender's"


async def test_a_long_chain_does_not_recurse(manager: Manager) -> None:
    """B32: two thousand links."""
    ran: list[int] = []

    class Link(Job):
        n: int

        async def handle(self) -> None:
            ran.append(self.n)

    await Chain(*(Link(n=n) for n in range(2000))).send()
    assert ran == list(range(2000))
    assert await depth(manager) == (0, 0, 0)


async def test_a_broken_chain_stops_and_tells_once(manager: Manager) -> None:
    """B32: link 4 of 7 raises."""
    ran: list[int] = []
    told: list[str] = []

    class Link(Job, retries=0):
        n: int

        async def handle(self) -> None:
            ran.append(self.n)
            if self.n == 4:
                raise ValueError("link 4")

    class Tell(Job):
        async def handle(self, error: Exception) -> None:
            told.append(str(error))

    with pytest.raises(ValueError, match="link 4"):
        await Chain(*(Link(n=n) for n in range(1, 8))).on_failure(Tell()).send()
    assert ran == [1, 2, 3, 4]
    assert len(told) == 1
    assert "link 4" in told[0]


async def test_a_batch_runs_with_its_callbacks(manager: Manager) -> None:
    order: list[str] = []

    class Member(Job):
        n: int

        async def handle(self) -> None:
            order.append(str(self.n))

    class Then(Job):
        async def handle(self) -> None:
            order.append("then")

    class Finally(Job):
        async def handle(self) -> None:
            order.append("finally")

    sent = await Batch([Member(n=n) for n in range(3)]).then(Then()).finally_(Finally()).send()
    assert sorted(order[:3]) == ["0", "1", "2"]
    assert sorted(order[3:]) == ["finally", "then"]
    batches = manager.require("batches", "batches")
    state = await batches.find(sent.id)
    assert (state.total, state.pending, state.failed, state.finished) == (3, 0, 0, True)


# --- around a push ---------------------------------------------------------------------------------------------


class Layer(Middleware):
    def __init__(self, name: str, steps: list[str], trouble: Exception | None = None) -> None:
        self.name = name
        self.steps = steps
        self.trouble = trouble

    @asynccontextmanager
    async def around_push(self, envelopes: object) -> AsyncIterator[None]:
        self.steps.append(f"{self.name} in")
        if self.trouble is not None:
            raise self.trouble
        try:
            yield
        finally:
            self.steps.append(f"{self.name} out")

    @asynccontextmanager
    async def around_run(self, context: JobContext) -> AsyncIterator[None]:
        self.steps.append(f"{self.name} run")
        yield


class Step(Job):
    async def handle(self) -> None: ...


async def test_middleware_stands_around_a_push_outermost_first() -> None:
    steps: list[str] = []
    async with Manager("sync", middleware=[Layer("a", steps), Layer("b", steps)]):
        await dispatch(Step()).send()
    assert steps == ["a in", "b in", "b out", "a out", "a run", "b run"]


async def test_middleware_that_refuses_a_push_lets_the_outer_ones_leave() -> None:
    steps: list[str] = []
    layers = [Layer("a", steps), Layer("b", steps, PermissionError("closed"))]
    async with Manager("memory://", middleware=layers) as manager:
        with pytest.raises(PermissionError, match="closed"):
            await dispatch(Step()).send()
        assert (await manager.depth()).pending == 0
    assert steps == ["a in", "b in", "a out"]


class Ears(Observer):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def dispatched(self, envelope: Envelope) -> None:
        self.heard.append("dispatched")

    def started(self, claim: Claim) -> None:
        self.heard.append("started")

    async def processed(self, claim: Claim, duration: float, error: str | None) -> None:
        assert duration >= 0
        self.heard.append(f"processed {error}")


async def test_observers_hear_of_inline_runs_too() -> None:
    ears = Ears()
    async with Manager("sync", observers=[ears]):
        await dispatch(Step()).send()
    assert ears.heard == ["dispatched", "started", "processed None"]


async def test_a_push_that_fails_or_is_a_duplicate_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """JD9."""
    ears = Ears()
    async with Manager("memory://", observers=[ears]) as manager:
        await dispatch(Step()).unique("k").send()
        await dispatch(Step()).unique("k", on_duplicate="skip").send()
        assert ears.heard == ["dispatched"]

        async def fail(*_: object, **__: object) -> None:
            raise OSError("gone")

        monkeypatch.setattr(manager.adapter, "push", fail)
        with pytest.raises(OSError, match="gone"):
            await dispatch(Step()).send()
    assert ears.heard == ["dispatched"]
