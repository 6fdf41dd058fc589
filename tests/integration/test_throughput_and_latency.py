"""What an idle worker costs, and how soon it begins. Limits are generous: the machine is busy with other tests."""

from __future__ import annotations

import asyncio
import statistics
import time

import psutil
import pytest

from nimbusq import Worker, dispatch, dispatch_many, job
from tests.faults.stage import Stage
from tests.integration.programs.trials import Trial


@pytest.mark.slow
async def test_an_idle_worker_uses_next_to_no_processor_time(stage: Stage) -> None:
    """B53: 0.3 s in 30 s, here 0.1 s in 10 s."""
    worker = await stage.started(lease=60.0)
    await asyncio.sleep(1)
    process = psutil.Process(worker.pid)
    before = process.cpu_times()
    await asyncio.sleep(10)
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    print(f"idle: {used:.3f} s of processor time in 10 s")  # noqa: T201  # a figure for the reader
    assert used <= 0.1


async def test_a_job_from_another_process_starts_soon(stage: Stage) -> None:
    """p95 of 100 ms, on a quiet machine; here three times as much is let pass."""
    await stage.started(lease=60.0)
    waits: list[float] = []
    async with stage.manager():
        for n in range(40):
            await asyncio.sleep(0.05)
            sent_at = time.monotonic()
            await dispatch(Trial(n=n)).send()
            await stage.until(lambda: stage.ledger.count("start") == n + 1, "the start")  # noqa: B023
            waits.append(stage.ledger.lines("start")[-1]["at"] - sent_at)
    p95 = statistics.quantiles(waits, n=20)[-1]
    print(f"from another process: p50 {statistics.median(waits) * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms")  # noqa: T201
    assert p95 <= 0.3


async def test_a_job_from_the_same_process_starts_at_once(stage: Stage) -> None:
    """p50 of 10 ms, on a quiet machine; here three times as much is let pass."""
    waits: list[float] = []
    begun = asyncio.Event()

    @job
    async def mark_the_time(sent_at: float) -> None:
        waits.append(time.monotonic() - sent_at)
        begun.set()

    async with stage.manager() as manager:
        worker = Worker(manager)
        running = asyncio.create_task(worker.run())
        for _ in range(60):
            await asyncio.sleep(0.01)
            begun.clear()
            await dispatch(mark_the_time, time.monotonic()).send()
            async with asyncio.timeout(10):
                await begun.wait()
        worker.stop()
        await running
    p50 = statistics.median(waits)
    print(f"from the same process: p50 {p50 * 1e3:.1f} ms, max {max(waits) * 1e3:.1f} ms")  # noqa: T201
    assert p50 <= 0.03


@pytest.mark.parametrize(
    "count", [2_000, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
async def test_every_job_runs_exactly_once(stage: Stage, count: int) -> None:
    """WK3: four processes on one file, nobody dies, none is left."""
    stage.testing = False
    async with stage.manager() as manager:
        await dispatch_many(Trial(n=n) for n in range(count))
        begun_at = time.monotonic()
        stage.start(nursery=4, concurrency=8, lease=60.0)
        await stage.until_empty(manager, within=500)
        took = time.monotonic() - begun_at
    print(f"{count} jobs over 4 processes in {took:.1f} s: {count / took:.0f} a second")  # noqa: T201
    assert stage.ledger.per("start") == stage.ledger.per("end") == dict.fromkeys(range(count), 1)
    assert stage.ledger.count("reclaimed") == 0
    pids = {line["pid"] for line in stage.ledger.lines("start")}
    assert len(pids) == 4, "all of them had their share"
