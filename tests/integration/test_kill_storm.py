"""A worker is killed every half second: nothing is lost, nothing ends twice, no job has too many runs."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import suppress

import pytest

from nimbusq import Receipt, dispatch_many
from nimbusq.testing.audit import AuditEvent, check
from tests.faults.stage import Stage
from tests.integration.programs.trials import Trial


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_storm_of_kills(stage: Stage) -> None:
    dice = random.Random(11)
    receipts: list[Receipt[None]] = []
    kills = 0

    async def top_up() -> None:
        if ((await manager.depth()).pending or 0) < 1_500:
            first = len(receipts)
            receipts.extend(await dispatch_many(Trial(n=first + n, seconds=0.02) for n in range(1_500)))

    async with stage.manager() as manager:
        await top_up()
        nursery = stage.start(nursery=4, concurrency=4, lease=2.0)
        await stage.until(lambda: len(stage.workers()) == 4, "four workers")
        end = time.monotonic() + 30
        while time.monotonic() < end:
            await asyncio.sleep(0.5)
            with suppress(ProcessLookupError):
                os.kill(dice.choice(stage.workers()), signal.SIGKILL)
                kills += 1
            await top_up()
        await stage.until_empty(manager, within=120)
        assert await stage.stopped(nursery) == 0
        events = [AuditEvent.of(row) for row in await manager.adapter.audit()]  # type: ignore[attr-defined]
        failed, _ = await manager.require("failed", "failed jobs").page()

    count = len(receipts)
    expired = sum(event.event == "lost" for event in events)
    starts = stage.ledger.per("start")
    print(f"{count} jobs, {kills} kills, {expired} leases expired, at most {max(starts.values())} runs")  # noqa: T201
    assert kills >= 40, "the run is void"
    assert expired >= 20, "the run is void"
    assert failed == []
    assert check(events) == []
    assert sorted(event.job_id for event in events if event.event == "done") == sorted(r.id for r in receipts)
    assert set(stage.ledger.per("end")) == set(range(count)), "each job has had its effect"
    assert max(starts.values()) <= Trial.options.retries + 1
    assert stage.ledger.count("processed") <= count
