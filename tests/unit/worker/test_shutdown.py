"""Stopping: nothing is lost, nothing costs an attempt, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from nimbusq import Job, JobFailed, dispatch
from nimbusq.errors import StoreUnavailable
from nimbusq.worker.run import Cut
from tests.unit.worker.bench import Bench, happens, until


async def test_a_running_job_may_end_within_the_grace(bench: Bench) -> None:
    begun, ends = asyncio.Event(), asyncio.Event()

    class Slow(Job):
        async def handle(self) -> str:
            begun.set()
            await ends.wait()
            return "whole"

    receipt = await dispatch(Slow()).send()
    worker = bench.worker(grace=5.0)
    running = asyncio.create_task(worker.run())
    await happens(begun)
    worker.stop()
    await until(lambda: bench.adapter.wants != [])
    asyncio.get_running_loop().call_later(0.1, ends.set)
    await running

    assert await receipt.result(timeout=1) == "whole"
    assert await bench.events(receipt.id) == ["push", "claim", "done"]


async def test_after_the_grace_it_is_put_back_without_an_attempt(bench: Bench) -> None:
    begun = asyncio.Event()

    class Endless(Job):
        async def handle(self) -> None:
            begun.set()
            await asyncio.Event().wait()

    receipt = await dispatch(Endless()).send()
    worker = bench.worker(grace=0.05)
    running = asyncio.create_task(worker.run())
    await happens(begun)
    worker.stop()
    await running

    view = await bench.view(receipt.id)
    assert (view.state, view.attempt, view.releases) == ("ready", 0, 0)


async def test_a_second_stop_does_not_wait_for_the_grace(bench: Bench) -> None:
    begun = asyncio.Event()

    class Endless(Job):
        async def handle(self) -> None:
            begun.set()
            await asyncio.Event().wait()

    receipt = await dispatch(Endless()).send()
    worker = bench.worker(grace=60.0)
    running = asyncio.create_task(worker.run())
    await happens(begun)
    worker.stop()
    worker.stop()
    async with asyncio.timeout(5):
        await running

    assert (await bench.view(receipt.id)).attempt == 0


async def test_a_worker_with_no_free_slot_stops_as_quickly(bench: Bench) -> None:
    """It sleeps for a third of its lease then, and must be woken."""
    begun = asyncio.Event()

    class Endless(Job):
        async def handle(self) -> None:
            begun.set()
            await asyncio.Event().wait()

    await dispatch(Endless()).send()
    before = time.monotonic()
    async with bench.working(concurrency=1, grace=0.0, lease=120.0):
        await happens(begun)
        await asyncio.sleep(0.02)
    assert time.monotonic() - before < 2


async def test_a_job_with_no_retries_fails_as_interrupted(bench: Bench) -> None:
    begun = asyncio.Event()

    class Once(Job, retries=0):
        async def handle(self) -> None:
            begun.set()
            await asyncio.Event().wait()

    receipt = await dispatch(Once()).send()
    async with bench.working(grace=0.0):
        await happens(begun)

    with pytest.raises(JobFailed, match="Interrupted"):
        await receipt.result(timeout=1)


async def test_a_run_that_is_cancelled_before_its_first_step_is_put_back_too(bench: Bench) -> None:
    """None of its code ever runs, so that nothing but the worker can end it."""

    class Never(Job):
        async def handle(self) -> None:
            raise AssertionError("it must not run")

    receipt = await dispatch(Never()).send()
    loop = asyncio.get_running_loop()
    async with bench.working(lease=1.0) as worker:

        def cancel_at_once() -> None:
            if not worker.running:
                loop.call_soon(cancel_at_once)
                return
            for run, _ in worker._runs._running.values():
                worker._runs.cut(run, Cut.SHUTDOWN)
                worker.stop()

        loop.call_soon(cancel_at_once)
        await until(lambda: any(bench.adapter.settlements))

    view = await bench.view(receipt.id)
    assert (view.state, view.attempt) == ("ready", 0)
    assert await bench.events(receipt.id) == ["push", "claim", "release"]


async def test_cancelling_run_ends_it_in_good_order(bench: Bench) -> None:
    begun = asyncio.Event()

    class Endless(Job):
        async def handle(self) -> None:
            begun.set()
            await asyncio.Event().wait()

    receipt = await dispatch(Endless()).send()
    running = asyncio.create_task(bench.worker(grace=0.0).run())
    await happens(begun)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    view = await bench.view(receipt.id)
    assert (view.state, view.attempt) == ("ready", 0)


async def test_a_handler_that_swallows_its_cancellation_keeps_nobody_waiting(
    bench: Bench, freed: asyncio.Event
) -> None:
    """B18: it is abandoned, its lease is renewed no more, and the worker ends."""
    begun = asyncio.Event()

    class Stubborn(Job):
        async def handle(self) -> None:
            begun.set()
            while not freed.is_set():
                try:
                    await freed.wait()
                except asyncio.CancelledError:
                    continue

    receipt = await dispatch(Stubborn()).send()
    before = time.monotonic()
    async with bench.working(grace=0.1, lease=1.0):
        await happens(begun)
    assert time.monotonic() - before < 0.1 + 4

    assert (await bench.view(receipt.id)).state == "leased"
    await bench.advance(1.0)
    (again,) = await bench.claim()
    assert (again.id, again.attempt, again.reclaimed) == (receipt.id, 2, True)


async def test_two_hundred_stops_lose_no_claim(bench: Bench) -> None:
    """Each at a moment of its own: what was claimed is run or handed back, with no attempt spent."""
    dice = random.Random(7)
    done: list[int] = []

    class Tick(Job, retries=0):
        n: int

        async def handle(self) -> None:
            await asyncio.sleep(0)
            done.append(self.n)

    for n in range(200):
        worker = bench.worker(concurrency=3, grace=5.0)
        running = asyncio.create_task(worker.run())
        await dispatch(Tick(n=n)).send()
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(0)
        worker.stop()
        await running
        assert await bench.depth() == (1 + n - len(done), 0, 0), "a claim was left behind"

    async with bench.working():
        await until(lambda: len(done) == 200)
    assert sorted(done) == list(range(200))


async def test_a_store_that_goes_away_does_not_keep_a_stopping_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nimbusq.worker.worker.SETTLING_PATIENCE", 0.3)
    begun, ends = asyncio.Event(), asyncio.Event()

    class Brief(Job):
        async def handle(self) -> None:
            begun.set()
            await ends.wait()

    async def away(_: object) -> None:
        raise StoreUnavailable("gone")

    receipt = await dispatch(Brief()).send()
    async with bench.working(grace=1.0):
        await happens(begun)
        bench.adapter.before["settle"] = away
        ends.set()

    assert (await bench.view(receipt.id)).state == "leased", "its lease brings it back"
