"""Handlers in processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nimbusq import JobFailed, Manager, Worker, dispatch

sys.path.insert(0, str(Path(__file__).parent / "programs"))
import heavy


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    async with Manager("memory://") as manager:
        worker = Worker(manager, lease=1.5, concurrency=2)
        running = asyncio.create_task(worker.run())
        yield worker
        worker.stop()
        await running


async def result(builder: Any) -> Any:
    receipt = await builder.send()
    return await receipt.result(timeout=20)


async def test_a_child_runs_the_handler_and_is_used_again(worker: Worker) -> None:
    first, n, attempt = await result(dispatch(heavy.where, 3))
    assert (n, attempt) == (3, 1)
    assert first != os.getpid()
    second, _, _ = await result(dispatch(heavy.where, 4))
    assert second == first
    assert await result(dispatch(heavy.coroutine, 1)) == b"\x01\xff"


async def test_errors_come_back_as_text(worker: Worker) -> None:
    with pytest.raises(JobFailed, match="ValueError: heavy"):
        await result(dispatch(heavy.misbehave, "error"))
    (record,), _ = await worker.manager.require("failed", "").page()
    assert (record.kind, record.error, record.attempts) == ("ValueError", "ValueError: heavy", 2)
    assert "in misbehave" in record.traceback


async def test_outcomes_come_back_as_they_were_meant(worker: Worker) -> None:
    with pytest.raises(JobFailed, match="for good"):
        await result(dispatch(heavy.misbehave, "fail"))
    with pytest.raises(JobFailed, match="at once"):
        await result(dispatch(heavy.misbehave, "stop"))
    records, _ = await worker.manager.require("failed", "").page()
    assert [record.attempts for record in records] == [1, 1]
    assert await result(dispatch(heavy.misbehave, "release")) == "released twice"


async def test_a_dead_child_is_a_failed_attempt(worker: Worker) -> None:
    with pytest.raises(JobFailed, match="ended with code 7"):
        await result(dispatch(heavy.misbehave, "die"))
    assert (await result(dispatch(heavy.where, 1)))[1] == 1


async def test_a_time_limit_kills_the_child(worker: Worker) -> None:
    begun = time.monotonic()
    with pytest.raises(JobFailed, match="timeout"):
        await result(dispatch(heavy.spin))
    assert time.monotonic() - begun < 10


async def test_code_that_holds_the_interpreter_keeps_its_lease_and_stalls_nobody(worker: Worker) -> None:
    held = await dispatch(heavy.hold_the_interpreter, 4.0).send()
    begun = time.monotonic()
    await result(dispatch(heavy.coroutine, 1))
    assert time.monotonic() - begun < 3.5
    await held.result(timeout=20)
    assert worker.counters["default"].get("reclaimed", 0) == 0
    assert worker.counters["default"].get("stale", 0) == 0
