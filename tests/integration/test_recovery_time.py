"""How soon the jobs of a killed worker are taken up, on each store with timed leases."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nimbusq import dispatch
from tests.conftest import SERVERS
from tests.faults.stage import Stage, staged
from tests.integration.conftest import TRIALS
from tests.integration.programs.trials import Trial

STORES = [
    "sqlite",
    *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("redis", "postgres", "mysql")),
]
LEASE = 2.0
SECOND = 1.0
"""Beyond the lease, until the store's next look is due at the latest."""


@pytest.fixture(params=STORES)
async def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """An empty queue on each store that has leases of its own."""
    url = os.environ.get(SERVERS.get(request.param, ""), f"sqlite:///{tmp_path / 'jobs.db'}")
    stage = Stage(url, tmp_path, TRIALS)
    async with staged(stage):
        yield stage


async def test_with_a_free_slot_the_job_starts_between_the_lease_and_a_second_more(anywhere: Stage) -> None:
    stage = anywhere
    async with stage.manager():
        await dispatch(Trial(n=1, seconds=60)).send()
        first = await stage.started(lease=LEASE)
        await stage.until(lambda: stage.ledger.count("start") == 1, "the first start")
        await asyncio.sleep(0.8)  # its lease has been renewed once by now
        await stage.started(lease=LEASE)
        killed_at = time.monotonic()
        first.kill()
        await stage.until(lambda: stage.ledger.count("start") == 2, "the second start")
    second = stage.ledger.lines("start")[1]
    assert LEASE * 2 / 3 - 0.2 < second["at"] - killed_at < LEASE + SECOND, (
        "the lease counts from its last renewal"
    )
    assert (second["attempt"], stage.ledger.count("reclaimed")) == (2, 1)


async def test_with_every_slot_busy_the_loss_is_noticed_and_settled_in_the_same_time(anywhere: Stage) -> None:
    stage = anywhere
    async with stage.manager() as manager:
        lost = await dispatch(Trial(n=1, seconds=60)).send()
        over = await dispatch(Trial(n=2, seconds=60)).retries(0).send()
        first = await stage.started(lease=LEASE, concurrency=2)
        await stage.until(lambda: stage.ledger.count("start") == 2, "the first starts")
        await dispatch(Trial(n=3, seconds=60)).send()
        await stage.started(lease=LEASE, concurrency=1)
        await stage.until(lambda: stage.ledger.count("start") == 3, "a busy second worker")
        await asyncio.sleep(0.8)
        killed_at = time.monotonic()
        first.kill()
        await stage.until(lambda: stage.ledger.count("reclaimed") == 2, "the loss of both")
        assert max(line["at"] for line in stage.ledger.lines("reclaimed")) - killed_at < LEASE + SECOND
        failed = manager.require("failed", "failed jobs")
        while not (records := (await failed.page())[0]):
            assert time.monotonic() - killed_at < LEASE + SECOND + 0.5
            await asyncio.sleep(0.02)
        assert [(record.id, record.kind) for record in records] == [(over.id, "WorkerLost")]
        view = await lost.refresh()
    assert view is not None
    assert (view.state, view.attempt) == ("ready", 1), "the other one waits for a slot"
    assert stage.ledger.count("start") == 3
