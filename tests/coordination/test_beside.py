"""SQS and Kafka with a store beside them: what ties jobs together is as exact as on the store alone."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from nimbusq import Batch, Chain, Worker, dispatch, dispatch_many
from nimbusq.failed import retry
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop
from tests.coordination.test_chains import assert_queued_once
from tests.coordination.test_overlap import most_at_once
from tests.coordination.test_rates import assert_within
from tests.coordination.test_unique import KINDS, fifty_sends

log = logging.getLogger(__name__)


@pytest.mark.parametrize("kind", KINDS)
async def test_fifty_sends_from_five_processes_queue_one(beside: Place, kind: str) -> None:
    answers = await fifty_sends(beside, kind)
    queued = [job_id for status, job_id in answers if status == "queued"]
    assert len(queued) == 1
    assert {job_id for status, job_id in answers if status == "duplicate"} == set(queued)


async def test_two_processes_run_one_at_a_time(beside: Place) -> None:
    async with beside.manager() as manager:
        for name, seconds in (("long", 3.0), ("a", 0.1), ("b", 0.1), ("c", 0.1)):
            receipt = (
                await dispatch(shop.step, name, seconds).without_overlapping("k", release_after=0.2).send()
            )
            assert receipt.via != manager.adapter.capabilities.driver
        for _ in range(2):
            beside.start("worker", LEASE=1, CONCURRENCY=2)
        await beside.until(lambda: len(beside.counts("end")) == 4, "the four ends")
        assert most_at_once(beside) == 1
        assert {line[3] for line in beside.notes("start")} == {"1"}


@pytest.mark.timeout(180)
async def test_every_tenth_member_dies_after_its_body(beside: Place) -> None:
    """As in test_batches: what counts them is the store."""
    async with beside.manager():
        jobs = [
            dispatch(shop.suicidal if n % 10 == 9 else shop.step, f"m{n}").retries(50) for n in range(1000)
        ]
        batch = await Batch(jobs).then(shop.on_then).finally_(shop.on_finally).send()
        beside.start("nursery", 2, LEASE=1, CONCURRENCY=8)
        await beside.until(lambda: bool(beside.notes("then") and beside.notes("finally")), "its end", 120)
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed, state.finished) == (1000, 0, 0, True)
        assert len(beside.counts("end")) == 1000
        assert (len(beside.notes("then")), len(beside.notes("finally"))) == (1, 1)


async def test_kills_at_every_window_of_a_chain_queue_each_link_once(beside: Place) -> None:
    """As in test_chains; the settlements that are cut are the store's."""
    async with beside.manager():
        await Chain(*(dispatch(shop.step, f"l{n}") for n in range(5))).send()
        beside.start("nursery", 1, LEASE=0.8, DIE="before:1,after:1," * 5, CONCURRENCY=1)
        await beside.until(lambda: beside.counts("end")["l4"] >= 2, "the last link")
        await asyncio.sleep(1.0)
        assert_queued_once(beside, 5)


async def test_plain_jobs_fail_into_the_store_and_come_back_from_it(beside: Place) -> None:
    async with beside.manager() as manager, workers(Worker(manager, lease=5)):
        receipt = await dispatch(shop.broken, "x").send()
        assert receipt.via == manager.adapter.capabilities.driver
        store = manager.require("failed", "")
        async with asyncio.timeout(20):
            while (record := await store.get(receipt.id)) is None:
                await asyncio.sleep(0.02)
        assert (record.error, record.attempts, record.queue) == ("ValueError: x", 1, "default")
        assert (await retry([receipt.id])).retried == 1
        assert (await retry([receipt.id])).retried == 0
        await beside.until(lambda: beside.counts("start")["x"] == 2, "the second run", 20)


async def test_a_rate_is_shared_by_two_processes_though_the_carrier_has_none(beside: Place) -> None:
    async with beside.manager() as manager:
        for _ in range(2):
            beside.start("worker", RATE=20, LEASE=5)
        async with asyncio.timeout(30):
            while len(await manager.require("workers", "").list()) < 2:
                await asyncio.sleep(0.02)
        since = time.monotonic()
        receipts = await dispatch_many([dispatch(shop.step, f"j{n}") for n in range(20)])
        assert {receipt.via for receipt in receipts} == {manager.adapter.capabilities.driver}
        await beside.until(lambda: len(beside.counts("end")) == 20, "the twenty ends")
    starts = sorted(float(line[0]) for line in beside.notes("start"))
    assert len(starts) == 20
    log.info("from the first to the 20th start: %.3f s", starts[-1] - starts[0])
    assert_within(starts, since - 0.1, 20, 1)  # a start follows its reservation by one claiming call
    assert starts[-1] - starts[0] >= 0.85, "0.95 s, less what the first claim took after its reservation"
    assert {line[3] for line in beside.notes("start")} == {"1"}
