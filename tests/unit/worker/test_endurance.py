"""Long lives: no task is dropped by the collector, and nothing is kept of jobs that have ended."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from nimbusq import Job, dispatch, dispatch_many
from nimbusq.worker.run import Run
from tests.unit.worker.bench import Bench


@pytest.fixture
def eager_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


async def test_no_task_is_lost_to_the_garbage_collector(
    bench: Bench, eager_collector: None, caplog: pytest.LogCaptureFixture
) -> None:
    """B67: every task of the worker has a strong reference somewhere; jobs that fail with hooks too."""
    asyncio.get_running_loop().set_debug(True)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # slow callbacks are no news here
    ended: list[int] = []

    class Mixed(Job, retries=0):
        n: int

        async def handle(self) -> None:
            await asyncio.sleep(0)
            if self.n % 3 == 0:
                raise ValueError
            ended.append(self.n)

        async def failed(self, error: Exception) -> None:
            await asyncio.sleep(0)
            ended.append(self.n)

    await dispatch_many([Mixed(n=n) for n in range(300)])
    async with bench.working(concurrency=20, lease=3.0):
        async with asyncio.timeout(40):
            while len(ended) < 300:
                await asyncio.sleep(0.01)
    assert sorted(ended) == list(range(300))
    assert "was destroyed but it is pending" not in caplog.text
    assert "never retrieved" not in caplog.text


async def test_a_worker_keeps_nothing_of_jobs_that_have_ended(bench: Bench) -> None:
    """B47, on a small scale: no run, no error, no job outlives the last group of settlements."""

    class Quick(Job, retries=0):
        n: int

        async def handle(self) -> None:
            if self.n % 2:
                raise Odd(self.n)

    class Odd(Exception):
        pass

    await dispatch_many([Quick(n=n) for n in range(1000)])
    async with bench.working(concurrency=20) as worker:
        async with asyncio.timeout(20):
            while await bench.depth() != (0, 0, 0):
                await asyncio.sleep(0.01)
        tasks = len(asyncio.all_tasks())
        gc.collect()
        kept = Counter(
            type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, Run | Odd | Quick)
        )
        assert all(count <= 2 * 20 for count in kept.values()), kept
        assert tasks < 10
        assert (worker.running, worker.abandoned) == (0, 0)


async def test_a_stopped_worker_leaves_no_thread_and_no_task(bench: Bench) -> None:
    class Threaded(Job):
        def handle(self) -> None: ...

    threads, tasks = threading.active_count(), len(asyncio.all_tasks())
    for _ in range(5):
        receipt = await dispatch(Threaded()).send()
        async with bench.working(lease=0.3):
            await receipt.result(timeout=5)
    async with asyncio.timeout(5):
        while (
            threading.active_count() > threads + 1
        ):  # asyncio's own executor, which waits for threads to end
            await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == tasks


async def test_run_once_may_be_called_again_and_again(bench: Bench) -> None:
    done: list[int] = []

    class Threaded(Job):
        n: int

        def handle(self) -> None:
            done.append(self.n)

    worker = bench.worker(concurrency=2)
    await dispatch_many([Threaded(n=n) for n in range(5)])
    assert [await worker.run_once() for _ in range(4)] == [2, 2, 1, 0]
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert await bench.depth() == (0, 0, 0)
