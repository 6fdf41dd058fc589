"""SQS and workers that are killed: nothing is lost, and little runs twice."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from nimbusq import Manager, Settings, dispatch, dispatch_many
from nimbusq.driver import DriverSettings
from nimbusq_sqs import SqsAdapter
from tests.drivers.sqs_env import drop, fresh_prefix, new_session
from tests.faults.sqs_worker import storm

pytestmark = [pytest.mark.sqs, pytest.mark.slow, pytest.mark.timeout(420)]

log = logging.getLogger("storm")
"""Figures, shown with ``--log-cli-level=INFO``."""

WORKER = Path(__file__).with_name("sqs_worker.py")
ROOT = Path(__file__).parents[2]
LEASE = 3.0
SLOTS = 20


class Storm:
    """Worker processes on one queue, and what their jobs noted."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self.environment = environment
        self.log = log
        self.workers: list[asyncio.subprocess.Process] = []
        log.touch()

    async def start(self) -> None:
        environment = {**os.environ, **self.environment, "STORM_LOG": str(self.log), "PYTHONPATH": str(ROOT)}
        self.workers.append(
            await asyncio.create_subprocess_exec(
                sys.executable, str(WORKER), str(SLOTS), str(LEASE), env=environment
            )
        )

    async def end(self, worker: asyncio.subprocess.Process, with_signal: int) -> None:
        self.workers.remove(worker)
        worker.send_signal(with_signal)
        await worker.wait()

    def noted(self, event: str) -> list[tuple[int, int]]:
        """(job, attempt) of every such note."""
        lines = (line.split() for line in self.log.read_text().splitlines())
        return [(int(n), int(attempt)) for kind, n, attempt, _ in lines if kind == event]

    def times(self, event: str) -> list[float]:
        """When it happened, in seconds since the epoch."""
        lines = (line.split() for line in self.log.read_text().splitlines())
        return [float(at) for kind, _, _, at in lines if kind == event]

    async def until(self, event: str, count: int) -> None:
        while len(self.noted(event)) < count:
            await asyncio.sleep(0.02)


@pytest.fixture
async def storming(
    sqs_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Storm]:
    prefix = fresh_prefix()
    environment = {
        "QUEUE_DRIVER": "sqs://us-east-1",
        "SQS_ENDPOINT_URL": sqs_endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "NIMBUSQ_PREFIX": prefix,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    storm = Storm(environment, tmp_path / "log")
    try:
        yield storm
    finally:
        for worker in list(storm.workers):
            await storm.end(worker, signal.SIGKILL)
        settings = DriverSettings(prefix=prefix)
        await drop(SqsAdapter(session=new_session(), endpoint_url=sqs_endpoint, settings=settings), prefix)


async def test_5000_jobs_survive_30_killed_workers(storming: Storm) -> None:
    jobs, kills, dice = 5_000, 30, random.Random(1)
    async with Manager(settings=Settings()) as manager:
        began = time.monotonic()
        await dispatch_many([storm.bind(n=n) for n in range(jobs)])
        pushed = time.monotonic()
        for _ in range(3):
            await storming.start()
        for kill in range(kills):
            await storming.until("end", (kill + 1) * jobs // (kills + 2))
            await storming.end(dice.choice(storming.workers), signal.SIGKILL)
            await storming.start()
        killed = time.monotonic()
        async with asyncio.timeout(120):
            while len({n for n, _ in storming.noted("end")}) < jobs or await _left(manager):
                await asyncio.sleep(0.25)
        for worker in list(storming.workers):
            await storming.end(worker, signal.SIGTERM)
        failed = (await manager.depth("default-failed")).pending
    ends, starts = (Counter(n for n, _ in storming.noted(event)) for event in ("end", "start"))
    twice = sum(count - 1 for count in ends.values())
    attempts = max(attempt for _, attempt in storming.noted("start"))
    log.info(
        "%d jobs sent in %.1f s, %d kills in %.1f s, all done %.1f s later; %d starts, "
        "%d ended twice, highest attempt %d",
        jobs, pushed - began, kills, killed - pushed, time.monotonic() - killed, starts.total(), twice, attempts,
    )  # fmt: skip
    assert set(ends) == set(range(jobs)), "0 lost"
    assert failed == 0
    assert starts.total() <= jobs + kills * SLOTS * 2
    assert attempts <= 21


async def _left(manager: Manager) -> int:
    depth = await manager.depth()
    return (depth.pending or 0) + (depth.delayed or 0) + (depth.running or 0)


async def test_a_killed_idle_worker_hides_the_next_job_for_a_while_but_does_not_lose_it(
    storming: Storm,
) -> None:
    """Its long poll swallows one message: that comes back with its lease, an attempt counted."""
    async with Manager(settings=Settings()) as manager:
        await storming.start()
        await storming.until("up", 1)
        await asyncio.sleep(1.5)
        await storming.end(storming.workers[0], signal.SIGKILL)
        await dispatch_many([storm.bind(n=1)])
        await storming.start()
        async with asyncio.timeout(30):
            await storming.until("end", 1)
            while await _left(manager):
                await asyncio.sleep(0.1)
    assert [n for n, _ in storming.noted("end")] == [1]


async def test_delays_longer_than_the_lease_run_once_and_never_early(storming: Storm) -> None:
    """No worker holds what is delayed (B17); one of the workers is killed meanwhile, which may hide one job for a
    lease longer."""
    async with Manager(settings=Settings()) as manager:
        for _ in range(4):
            await storming.start()
        await storming.until("up", 4)
        sent_at = time.time()
        await dispatch_many([dispatch(storm, n=n).delay(7) for n in range(100)])
        sent = time.time()
        await asyncio.sleep(3.0)
        await storming.end(storming.workers[0], signal.SIGKILL)
        await storming.start()
        async with asyncio.timeout(30):
            await storming.until("end", 100)
            while await _left(manager):
                await asyncio.sleep(0.1)
    assert Counter(n for n, _ in storming.noted("start")) == dict.fromkeys(range(100), 1)
    starts = storming.times("start")
    assert min(starts) >= sent_at + 7.0
    assert max(starts) <= sent + 7.0 + LEASE + 3.0
