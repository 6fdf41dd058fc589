"""Receipts: waiting for a job's end, and every way in which it may end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from nimbusq import Fail, Job, JobCancelled, JobFailed, Manager, ResultExpired, Worker, dispatch, job
from nimbusq.driver import DriverSettings
from nimbusq.receipt import Receipt
from nimbusq_sync import SyncAdapter


class Answer(Job):
    value: int | None = 42

    async def handle(self) -> int | None:
        return self.value


@pytest.fixture
async def store() -> AsyncIterator[SyncAdapter]:
    store = SyncAdapter(inline=False, settings=DriverSettings(testing=True))
    async with Manager(store):
        yield store


async def work() -> None:
    await Worker().run_once()


async def test_the_value_that_the_job_returned(store: SyncAdapter) -> None:
    receipt = await dispatch(Answer()).send()
    waiting = asyncio.create_task(receipt.result(timeout=5))
    await asyncio.sleep(0)
    assert not waiting.done()
    await work()
    assert await waiting == 42
    assert await receipt.result(timeout=timedelta(seconds=1)) == 42


async def test_none_of_a_job_that_returned_none(store: SyncAdapter) -> None:
    receipt = await dispatch(Answer(value=None)).send()
    await work()
    assert await receipt.result(timeout=1) is None


async def test_a_value_has_the_type_that_the_function_says(store: SyncAdapter) -> None:
    @job
    async def pair() -> tuple[int, bytes]:
        return 1, b"\xff"

    receipt = await dispatch(pair).send()
    await work()
    assert await receipt.result(timeout=1) == (1, b"\xff")


async def test_time_out(store: SyncAdapter) -> None:
    receipt = await dispatch(Answer()).send()
    with pytest.raises(TimeoutError, match=r"had not ended after 0\.01 s"):
        await receipt.result(timeout=0.01)
    await work()
    assert await receipt.result(timeout=1) == 42, "to wait again is fine"


async def test_a_failed_job(store: SyncAdapter) -> None:
    class Broken(Job):
        async def handle(self) -> None:
            raise Fail("no use")

    receipt = await dispatch(Broken()).send()
    await work()
    with pytest.raises(JobFailed, match=f"job {receipt.id} failed: no use") as caught:
        await receipt.result(timeout=1)
    assert (caught.value.job_id, caught.value.error) == (receipt.id, "no use")


async def test_a_cancelled_job(store: SyncAdapter) -> None:
    """B66: queued or delayed, it ends at once; to ask again changes nothing."""
    for receipt in (await dispatch(Answer()).send(), await dispatch(Answer()).delay(60).send()):
        assert await receipt.cancel() is True
        with pytest.raises(JobCancelled, match="cancelled by request"):
            await receipt.result(timeout=1)
        assert await receipt.cancel() is False
        view = await receipt.refresh()
        assert view is not None
        assert view.state == "cancelled"


async def test_cancelling_frees_the_unique_slot(store: SyncAdapter) -> None:
    receipt = await dispatch(Answer()).unique("k").send()
    await receipt.cancel()
    assert (await dispatch(Answer()).unique("k").send()).status == "queued"


async def test_a_job_that_has_ended_cannot_be_cancelled(store: SyncAdapter) -> None:
    receipt = await dispatch(Answer()).send()
    await work()
    assert await receipt.cancel() is False
    assert await receipt.result(timeout=1) == 42


async def test_an_expired_result(store: SyncAdapter) -> None:
    receipt = await dispatch(Answer()).send()
    await work()
    await store.advance(3601)
    with pytest.raises(ResultExpired, match="its result has expired"):
        await receipt.result(timeout=1)
    store._state.history.clear()
    with pytest.raises(ResultExpired, match="never was"):
        await receipt.result(timeout=1)


async def test_an_unknown_job(store: SyncAdapter) -> None:
    known = await dispatch(Answer()).send()
    stranger: Receipt[int] = Receipt(id="nobody", status="queued", _manager=known._manager)
    with pytest.raises(ResultExpired):
        await stranger.result(timeout=1)
    assert await stranger.cancel() is False
    assert await stranger.refresh() is None


async def test_a_duplicate_waits_for_the_holder(store: SyncAdapter) -> None:
    await dispatch(Answer()).unique("k").send()
    duplicate = await dispatch(Answer()).unique("k", on_duplicate="return").send()
    await work()
    assert await duplicate.result(timeout=1) == 42


async def test_many_wait_for_one(store: SyncAdapter) -> None:
    receipt = await dispatch(Answer()).send()
    waiting = [asyncio.create_task(receipt.result(timeout=5)) for _ in range(20)]
    await asyncio.sleep(0)
    await work()
    assert await asyncio.gather(*waiting) == [42] * 20
