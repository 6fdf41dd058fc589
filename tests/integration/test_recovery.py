"""Workers that die, freeze, block or are told to stop, on one SQLite file. Leases are short: 1 or 2 s."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from nimbusq import JobFailed, dispatch, dispatch_many
from nimbusq.testing.audit import check
from tests.faults.stage import Stage
from tests.integration.programs.trials import BlockingTrial, PoisonTrial, StubbornTrial, Trial


@pytest.mark.parametrize("spin", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sleep", "loop"])
async def test_a_job_that_blocks_its_worker_is_run_once(stage: Stage, spin: bool) -> None:
    """B01 a and b: the lease is kept by a thread of its own, and a warning names the job and the line."""
    async with stage.manager():
        receipt = await dispatch(BlockingTrial(n=1, seconds=3.0, spin=spin)).send()
        await stage.started(lease=1.0)
        await stage.started(lease=1.0)
        await receipt.result(timeout=20)
    assert stage.ledger.per("start") == stage.ledger.per("end") == {1: 1}
    assert stage.ledger.count("reclaimed") == stage.ledger.count("lease_lost") == 0
    warning = re.findall(
        r"the event loop has been blocked for ([\d.]+) s by job BlockingTrial (\S+) at (\S+)", stage.logs()
    )
    assert len(warning) == 1
    assert 1 < float(warning[0][0]) < 3.5
    assert warning[0][1] == receipt.id
    assert "trials.py" in warning[0][2]


async def test_a_killed_workers_job_runs_again_within_a_lease_and_a_second(stage: Stage) -> None:
    """WK4: the lost run counts as an attempt."""
    async with stage.manager():
        await dispatch(Trial(n=1, seconds=60)).send()
        first = await stage.started(lease=2.0)
        await stage.until(lambda: stage.ledger.count("start") == 1, "the first start")
        await asyncio.sleep(0.8)  # the lease has been renewed once by now
        await stage.started(lease=2.0)
        killed_at = time.monotonic()
        first.kill()
        await stage.until(lambda: stage.ledger.count("start") == 2, "the second start")
    second = stage.ledger.lines("start")[1]
    assert 0.5 < second["at"] - killed_at < 2.0 + 1.0
    assert second["attempt"] == 2
    assert stage.ledger.count("reclaimed") == 1


async def test_poison_ends_after_its_runs_and_takes_nobody_with_it(stage: Stage) -> None:
    """B05, WK5: retries=2, so three starts; four innocent jobs in flight, twenty later."""
    async with stage.manager() as manager:
        innocents = [Trial(n=n, seconds=0.5) for n in range(4)]
        poison = await dispatch(PoisonTrial(n=99, seconds=0.1)).send()
        await dispatch_many(innocents)
        stage.start(nursery=1, concurrency=5, lease=1.0)
        await dispatch_many([Trial(n=n) for n in range(10, 30)])
        with pytest.raises(JobFailed, match=r"WorkerLost: its worker was lost in run 3"):
            await poison.result(timeout=30)
        await stage.until_empty(manager)
        records, _ = await manager.require("failed", "failed jobs").page()
        assert [(record.id, record.kind, record.attempts) for record in records] == [
            (poison.id, "WorkerLost", 3)
        ]
        assert check(await manager.adapter.audit()) == []  # type: ignore[attr-defined]
    assert stage.ledger.per("start")[99] == 3
    assert set(stage.ledger.per("end")) == {0, 1, 2, 3, *range(10, 30)}
    await stage.until(lambda: stage.ledger.count("failed") == 1, "failed()")
    assert stage.ledger.lines("failed")[0]["kind"] == "WorkerLost"


async def test_a_worker_that_was_frozen_past_its_lease_is_refused(stage: Stage) -> None:
    """B07, WK6: two runs, one end; the frozen one hears that it has lost its lease."""
    async with stage.manager() as manager:
        receipt = await dispatch(Trial(n=1, seconds=1.5)).unique("k").send()
        frozen = await stage.started(lease=1.0)
        await stage.until(lambda: stage.ledger.count("start") == 1, "the first start")
        freeze(frozen.pid, stage.folder / "jobs.db")
        await stage.started(lease=1.0)
        await stage.until(lambda: stage.ledger.count("start") == 2, "the second start")
        os.kill(frozen.pid, signal.SIGCONT)
        await receipt.result(timeout=20)
        await stage.until(lambda: stage.ledger.count("lease_lost") == 1, "the loss of the lease")
        assert await stage.stopped(frozen) == 0
        assert check(await manager.adapter.audit()) == []  # type: ignore[attr-defined]
        assert (await dispatch(Trial(n=2)).unique("k").send()).status == "queued"
    assert [line["attempt"] for line in stage.ledger.lines("processed") if line["id"] == receipt.id] == [2]
    assert stage.logs().count("lease lost") == 1


def freeze(pid: int, file: Path) -> None:
    """Stop the process at a moment at which it does not hold the file: nobody could write while it sleeps."""
    for _ in range(50):
        os.kill(pid, signal.SIGSTOP)
        with closing(sqlite3.connect(file, timeout=0.2, isolation_level=None)) as probe:
            try:
                probe.execute("begin immediate")
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.03)
            else:
                return
    pytest.fail("the worker holds the file all the time")


async def test_a_stopped_worker_finishes_one_and_leaves_the_rest_at_once(stage: Stage) -> None:
    """B19: ten jobs of 0.3 s, one slot, a lease of a minute; the other worker needs to wait for nothing."""
    async with stage.manager() as manager:
        receipts = await dispatch_many([Trial(n=n, seconds=0.3) for n in range(10)])
        first = await stage.started(concurrency=1, lease=60.0)
        await stage.until(lambda: stage.ledger.count("start") >= 1, "the first start")
        stopped_at = time.monotonic()
        assert await stage.stopped(first) == 0
        assert time.monotonic() - stopped_at < 2.0
        await stage.started(concurrency=1, lease=60.0)
        await stage.until_empty(manager)
        views = [await receipt.refresh() for receipt in receipts]
    assert [view.attempt for view in views if view] == [1] * 10
    assert stage.ledger.per("start") == stage.ledger.per("end") == dict.fromkeys(range(10), 1)


@pytest.mark.slow
async def test_running_jobs_that_outlast_the_grace_are_handed_back(stage: Stage) -> None:
    """WK9: without an attempt, and at once."""
    async with stage.manager() as manager:
        receipts = await dispatch_many([Trial(n=n, seconds=60) for n in range(3)])
        worker = await stage.started(concurrency=3, lease=60.0, grace=0.2)
        await stage.until(lambda: stage.ledger.count("start") == 3, "three starts")
        assert await stage.stopped(worker, within=4) == 0
        depth = await manager.depth()
        assert (depth.pending, depth.running) == (3, 0)
        assert [view.attempt for receipt in receipts if (view := await receipt.refresh())] == [0, 0, 0]


@pytest.mark.slow
async def test_a_handler_that_ignores_the_end_does_not_keep_the_process(stage: Stage) -> None:
    """B18: gone within grace + 4 s; the job starts elsewhere within a lease and a second."""
    async with stage.manager():
        await dispatch(StubbornTrial(n=1, seconds=60)).send()
        worker = await stage.started(lease=1.0, grace=0.3)
        await stage.until(lambda: stage.ledger.count("start") == 1, "the start")
        asked_at = time.monotonic()
        assert await stage.stopped(worker) == 1
        assert time.monotonic() - asked_at < 0.3 + 4
        await stage.started(lease=1.0)
        gone_at = stage.ledger.lines("down")[0]["at"]
        await stage.until(lambda: stage.ledger.count("start") == 2, "the second start")
    assert stage.ledger.lines("start")[1]["at"] - gone_at < 1.0 + 1.0 + 1.0  # and the start of a process


async def test_bytes_that_nobody_can_read_do_not_stop_the_jobs_behind_them(stage: Stage) -> None:
    """B15."""
    bad = {
        "not-json": b"not-json",
        "empty object": b"{}",
        "a megabyte": b'"' + b"x" * 1_000_000 + b'"',
        "hand-made": b'{"v":1,"id":"x","name":"Trial","queue":"default","overlap":{"key":"k","limit":"1"}}\n{}',
    }
    async with stage.manager() as manager:
        adapter = stage.adapter()
        await adapter.open()
        for job_id, raw in bad.items():
            await adapter.push_raw("default", raw, job_id=job_id)
        await adapter.push_raw(
            "default", b'{"v":999,"id":"newer","name":"Trial","queue":"default"}\n{}', job_id="newer"
        )
        await adapter.aclose()
        await dispatch_many([Trial(n=n) for n in range(10)])
        worker = await stage.started(lease=2.0)
        begun_at = time.monotonic()
        await stage.until(lambda: stage.ledger.count("end") == 10, "the good jobs' end")
        assert time.monotonic() - begun_at < 5
        failed = manager.require("failed", "failed jobs")
        await stage.until(lambda: stage.ledger.count("processed") == 14, "the bad jobs' end")
        assert {job_id: (await failed.get(job_id)).wire for job_id in bad} == bad
        depth = await manager.depth()
        assert (depth.pending, depth.delayed) == (0, 1), "bytes of a newer version wait for a newer worker"
        assert worker.poll() is None
    assert len(stage.logs().splitlines()) <= 40


@pytest.mark.slow
async def test_delays_longer_than_the_lease_run_once_and_in_time(stage: Stage) -> None:
    """B17: lease 1 s, delay 3 s; one of the workers is restarted meanwhile."""
    async with stage.manager() as manager:
        first = await stage.started(lease=1.0)
        await stage.started(lease=1.0)
        sent_at = time.monotonic()
        await dispatch_many([dispatch(Trial(n=n)).delay(3) for n in range(100)])
        took = time.monotonic() - sent_at
        await asyncio.sleep(1)
        first.kill()
        await stage.started(lease=1.0)
        await stage.until_empty(manager)
    assert stage.ledger.per("start") == stage.ledger.per("end") == dict.fromkeys(range(100), 1)
    waits = [line["at"] - sent_at for line in stage.ledger.lines("start")]
    assert min(waits) >= 3.0 - 0.05
    assert max(waits) <= 4.0 + took


@pytest.mark.slow
async def test_a_worker_that_breaks_ends_its_process(stage: Stage) -> None:
    """B08: no thread of a client or of ours keeps the interpreter."""
    worker = await stage.started(lease=2.0, broken=1)
    await stage.until(lambda: worker.poll() is not None, "the worker's end")
    assert worker.returncode == 1
    assert "RuntimeError: a bug in the driver" in stage.logs()
