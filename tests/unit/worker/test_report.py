"""What a worker says of itself, and that nothing about saying it can hurt."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from nimbusq import Job, dispatch
from nimbusq.driver import WorkerReport
from nimbusq.errors import InvalidName, StoreUnavailable
from nimbusq.worker.report import Reporter
from tests.unit.worker.bench import Bench, until


async def test_a_worker_is_listed_while_it_works_and_its_counts_stay(bench: Bench) -> None:
    class Quick(Job):
        async def handle(self) -> None: ...

    workers = bench.manager.require("workers", "the list of workers")
    receipt = await dispatch(Quick()).send()
    async with bench.working({"default": 2, "mail": None}, concurrency=3, name="w1"):
        await receipt.result(timeout=5)
        (seen,) = await workers.list()
        assert (seen.id, seen.pid, seen.queues, seen.concurrency) == (
            "w1",
            os.getpid(),
            ("default", "mail"),
            3,
        )
        assert "Quick" in seen.names
    assert await workers.list() == []
    assert await workers.totals() == {"default": {"processed": 1}}


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a\0", "\ud800"])
async def test_a_workers_name_obeys_the_grammar_of_names(bench: Bench, name: str) -> None:
    if name:
        with pytest.raises(InvalidName):
            bench.worker(name=name)
    else:
        assert bench.worker(name=name).id


class Away:
    """A workers store that is not there."""

    def __init__(self) -> None:
        self.calls = 0

    async def report(self, report: WorkerReport) -> None:
        self.calls += 1
        raise StoreUnavailable("gone")

    async def leave(self, worker_id: str) -> None:
        raise StoreUnavailable("gone")


async def test_a_store_that_is_away_costs_a_log_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nimbusq.worker.report.PERIOD", 0.001)
    away: Any = Away()
    stop = asyncio.Event()
    reporter = Reporter(away, bench.worker().report)
    task = asyncio.create_task(reporter.run(stop))
    await until(lambda: away.calls > 10)
    stop.set()
    await task
    await reporter.leave()
    assert caplog.text.count("gone") == 1, "one line in 5 s"
