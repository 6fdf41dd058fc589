"""Time limits: a run that takes longer is a failed attempt, and a handler that will not end holds nobody."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from nimbusq import Job, JobFailed, current_job, dispatch, dispatch_many
from nimbusq.errors import JobTimeout
from tests.unit.worker.bench import Bench, happens, until


async def test_running_out_of_time_is_a_failed_attempt(bench: Bench) -> None:
    runs: list[int] = []
    errors: list[Exception] = []

    class Slow(Job, timeout=0.05, retries=1, backoff=5):
        async def handle(self) -> None:
            runs.append(current_job().attempt)
            await asyncio.Event().wait()

        async def failed(self, error: Exception) -> None:
            errors.append(error)

    receipt = await dispatch(Slow()).send()
    await bench.worker().run_once()
    assert (await bench.view(receipt.id)).state == "delayed"
    await bench.advance(5)
    await bench.worker().run_once()
    assert runs == [1, 2]
    with pytest.raises(JobFailed, match=r"JobTimeout: the run took longer than its timeout of 0\.05 s"):
        await receipt.result(timeout=1)
    assert [type(error) for error in errors] == [JobTimeout]


async def test_a_handler_may_clean_up(bench: Bench) -> None:
    cleaned = asyncio.Event()

    class Tidy(Job, timeout=0.05, retries=0):
        async def handle(self) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.05)
                cleaned.set()

    receipt = await dispatch(Tidy()).send()
    await bench.worker().run_once()
    assert cleaned.is_set()
    with pytest.raises(JobFailed, match="JobTimeout"):
        await receipt.result(timeout=1)


async def test_a_run_that_ends_in_time_hears_nothing_of_its_limit(bench: Bench) -> None:
    class Quick(Job, timeout=0.1, retries=0):
        async def handle(self) -> int:
            return 1

    receipts = [await dispatch(Quick()).send() for _ in range(5)]
    async with bench.working():
        assert [await receipt.result(timeout=1) for receipt in receipts] == [1] * 5
        await asyncio.sleep(0.15)


async def test_a_handler_that_swallows_its_cancellation_is_abandoned(
    bench: Bench, freed: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """B18: its slot is freed, the others go on, its lease is left to lapse, and what it returns counts no more."""
    begun = asyncio.Event()
    done: list[int] = []

    class Stubborn(Job, timeout=0.05):
        async def handle(self) -> str:
            begun.set()
            while not freed.is_set():
                try:
                    await freed.wait()
                except asyncio.CancelledError:
                    continue
            return "too late"

    class Other(Job):
        n: int

        async def handle(self) -> None:
            done.append(self.n)

    receipt = await dispatch(Stubborn()).send()
    async with bench.working(concurrency=1, lease=30.0) as worker:
        await happens(begun)
        await dispatch_many([Other(n=n) for n in range(3)])
        await until(lambda: len(done) == 3)
        assert (worker.running, worker.abandoned) == (0, 1)
        assert (await bench.view(receipt.id)).state == "leased"
        assert f"job {receipt.id} ignored its cancellation (timeout)" in caplog.text
        freed.set()
        await until(lambda: worker.abandoned == 0)
        assert (await bench.view(receipt.id)).state == "leased", "an abandoned run settles nothing"
        await bench.advance(30.0)
        (again,) = await bench.claim()
        assert (again.id, again.attempt) == (receipt.id, 2)


async def test_abandoned_handlers_take_slots_when_there_are_too_many(
    bench: Bench, freed: asyncio.Event
) -> None:
    begun: list[int] = []

    class Stubborn(Job, timeout=0.02, retries=0):
        n: int

        async def handle(self) -> None:
            begun.append(self.n)
            while not freed.is_set():
                try:
                    await freed.wait()
                except asyncio.CancelledError:
                    continue

    await dispatch_many([Stubborn(n=n) for n in range(10)])
    async with bench.working(concurrency=2, lease=30.0) as worker:
        await until(lambda: len(begun) == 4)
        await asyncio.sleep(0.3)
        assert len(begun) == 4, "as many as there are slots are let go, then they keep their slots"
        assert worker.abandoned == 4
        freed.set()
        await until(lambda: len(begun) == 10)


# --- threads ---------------------------------------------------------------------------------------------------


async def test_plain_functions_run_in_threads_beside_each_other(bench: Bench) -> None:
    barrier = threading.Barrier(3, timeout=5)

    class Blocking(Job):
        def handle(self) -> bool:
            barrier.wait()
            return threading.current_thread() is not threading.main_thread()

    receipts = [await dispatch(Blocking()).send() for _ in range(3)]
    async with bench.working(concurrency=3):
        assert [await receipt.result(timeout=5) for receipt in receipts] == [True] * 3


async def test_a_thread_knows_its_job(bench: Bench) -> None:
    class Blocking(Job):
        def handle(self) -> str:
            return current_job().id

    receipt = await dispatch(Blocking()).send()
    await bench.worker().run_once()
    assert await receipt.result(timeout=1) == receipt.id


async def test_a_stopping_worker_puts_nothing_back_that_a_thread_still_works_on(bench: Bench) -> None:
    """A thread cannot be cancelled: what it achieves within the grace counts."""
    begun = threading.Event()

    class Blocking(Job):
        def handle(self) -> str:
            begun.set()
            time.sleep(0.15)
            return "whole"

    receipt = await dispatch(Blocking()).send()
    async with bench.working(grace=0.0):
        await until(begun.is_set)
    assert await bench.events(receipt.id) == ["push", "claim", "done"]
    assert await receipt.result(timeout=1) == "whole"


async def test_a_thread_that_outlasts_everything_is_abandoned(bench: Bench) -> None:
    begun, freed = threading.Event(), threading.Event()

    class Blocking(Job):
        def handle(self) -> str:
            begun.set()
            freed.wait(10)
            return "too late"

    receipt = await dispatch(Blocking()).send()
    async with bench.working(grace=0.0, lease=30.0):
        await until(begun.is_set)
    try:
        assert (await bench.view(receipt.id)).state == "leased"
    finally:
        freed.set()


async def test_a_time_limit_in_a_thread_is_a_failed_attempt(bench: Bench) -> None:
    class Blocking(Job, timeout=0.02, retries=0):
        def handle(self) -> None:
            time.sleep(0.1)

    receipt = await dispatch(Blocking()).send()
    await bench.worker().run_once()
    with pytest.raises(JobFailed, match="JobTimeout"):
        await receipt.result(timeout=1)


async def test_abandoned_threads_leave_others_for_the_next_jobs(bench: Bench) -> None:
    freed = threading.Event()
    done: list[int] = []

    class Blocking(Job, timeout=0.02, retries=0):
        def handle(self) -> None:
            freed.wait(10)

    class Quick(Job):
        n: int

        def handle(self) -> None:
            done.append(self.n)

    await dispatch_many([Blocking() for _ in range(2)])
    try:
        async with bench.working(concurrency=2, lease=30.0) as worker:
            await until(lambda: worker.abandoned == 2)
            await dispatch_many([Quick(n=n) for n in range(4)])
            await until(lambda: len(done) == 4)
            freed.set()
    finally:
        freed.set()
