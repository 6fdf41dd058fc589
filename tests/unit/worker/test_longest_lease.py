"""A driver that keeps a lease only so long (SQS: 12 hours): the run is cut in time, and says why."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nimbusq import Job, JobFailed, dispatch
from tests.unit.worker.bench import Bench


@pytest.fixture
def brief(bench: Bench) -> Bench:
    """A driver that keeps a lease for half a second at most."""
    bench.store.capabilities = replace(bench.store.capabilities, max_lease=0.5)
    return bench


async def test_a_run_near_the_longest_lease_fails_loudly(brief: Bench) -> None:
    class Endless(Job, retries=0):
        async def handle(self) -> None:
            await asyncio.Event().wait()

    receipt = await dispatch(Endless()).send()
    await brief.worker().run_once()
    with pytest.raises(
        JobFailed, match=r"JobTimeout: the run was cut after 0\.45 s: the sync driver cannot keep"
    ):
        await receipt.result(timeout=1)


async def test_a_timeout_below_it_counts(brief: Bench) -> None:
    class Slow(Job, timeout=0.05, retries=0):
        async def handle(self) -> None:
            await asyncio.Event().wait()

    receipt = await dispatch(Slow()).send()
    await brief.worker().run_once()
    with pytest.raises(JobFailed, match=r"longer than its timeout of 0\.05 s"):
        await receipt.result(timeout=1)


async def test_a_run_that_ends_in_time_is_not_touched(brief: Bench) -> None:
    class Quick(Job):
        async def handle(self) -> str:
            return "done"

    receipt = await dispatch(Quick()).send()
    await brief.worker().run_once()
    assert await receipt.result(timeout=1) == "done"
