"""What a run sees of its lease: kept through a blocked loop, and gone when it is gone."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from nimbusq import Job, LeaseLost, current_job, dispatch
from nimbusq.errors import StoreUnavailable
from tests.unit.worker.bench import Bench, Diary, happens, until


async def test_a_job_that_outlasts_its_lease_runs_once(bench: Bench) -> None:
    """LS1: lease 0.15 s, job 0.6 s, two workers."""
    starts: list[int] = []

    class Long(Job):
        async def handle(self) -> None:
            starts.append(current_job().attempt)
            await asyncio.sleep(0.6)

    receipt = await dispatch(Long()).send()
    async with bench.working(lease=0.15), bench.working(lease=0.15):
        await receipt.result(timeout=5)
    assert starts == [1]
    assert "lost" not in await bench.events(receipt.id)


async def test_a_blocked_loop_keeps_its_leases_and_is_told_who_blocks_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B01 a, LS6."""
    monkeypatch.setattr("nimbusq.worker.stall.PERIOD", 0.05)
    monkeypatch.setattr("nimbusq.worker.stall.WARN_AFTER", 0.2)

    class Blocking(Job):
        async def handle(self) -> None:
            time.sleep(1.0)  # noqa: ASYNC251  # that is the fault

    receipt = await dispatch(Blocking()).send()
    with caplog.at_level(logging.WARNING):
        async with bench.working(lease=0.3):
            await receipt.result(timeout=5)
            await until(lambda: "answers again" in caplog.text)
    assert "lost" not in await bench.events(receipt.id)
    warning = next(record for record in caplog.records if "has been blocked" in record.message)
    assert f"job Blocking {receipt.id}" in warning.message
    assert "test_lease.py" in warning.message
    assert "time.sleep(1.0)" in warning.message
    assert sum("has been blocked" in record.message for record in caplog.records) == 1


async def test_a_lost_lease_cancels_the_handler_and_refuses_what_it_did(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """B07, LS2: the handler may finish all the same; its outcome counts for nothing."""
    bench.manager.observers.add(diary := Diary())
    begun, ended = asyncio.Event(), asyncio.Event()
    seen: list[object] = []

    class Stale(Job):
        async def handle(self) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append(current_job().lease_lost)
                try:
                    current_job().check()
                except LeaseLost as error:
                    seen.append(type(error))
                ended.set()
                raise

    receipt = await dispatch(Stale()).send()
    async with bench.working(lease=0.9) as worker:
        await happens(begun)
        worker.stop()
        theirs = await bench.steal(0.9)
        await happens(ended)
        await until(lambda: not worker.running)
    assert seen == [True, LeaseLost]
    view = await bench.view(receipt.id)
    assert (view.state, view.attempt, theirs.attempt) == ("leased", 2, 2)
    assert await bench.events(receipt.id) == ["push", "claim", "lost", "claim"]
    assert diary.heard == [("lease_lost", receipt.id)], "nothing is settled, and the observers hear why"
    assert worker.counters == {"default": {"stale": 1}}


async def test_a_late_outcome_is_refused_and_counted(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """LS5: this worker did not notice in time; the new owner's lease is not touched."""
    bench.manager.observers.add(diary := Diary())
    begun, ends = asyncio.Event(), asyncio.Event()

    class Late(Job):
        async def handle(self) -> None:
            begun.set()
            await ends.wait()

    receipt = await dispatch(Late()).send()
    async with bench.working(lease=60.0) as worker:
        await happens(begun)
        worker.stop()
        theirs = await bench.steal(60.0)
        ends.set()
    assert worker.counters == {"default": {"stale": 1}}
    assert diary.heard == [("lease_lost", receipt.id)]
    assert "lease lost: the done of job" in caplog.text
    assert (await bench.view(receipt.id)).state == "leased"
    assert theirs.token in [token for event, *_, token, _, _ in await bench.store.audit() if event == "claim"]


async def test_a_cancel_by_request_reaches_the_handler_within_a_heartbeat(bench: Bench) -> None:
    """B66."""
    begun = asyncio.Event()
    seen: list[bool] = []

    class Endless(Job):
        async def handle(self) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                seen.append(current_job().cancel_requested)

    receipt = await dispatch(Endless()).send()
    async with bench.working(lease=0.3):
        await happens(begun)
        assert await receipt.cancel()
        async with asyncio.timeout(0.3 / 3 + 1):
            while (await bench.view(receipt.id)).state == "leased":
                await asyncio.sleep(0.01)
    assert seen == [True]
    assert (await bench.view(receipt.id)).state == "cancelled"
    assert await receipt.cancel() is False, "to ask again changes nothing"


async def test_a_keeper_that_dies_ends_the_worker_with_its_error(bench: Bench) -> None:
    begun = asyncio.Event()

    class Endless(Job):
        async def handle(self) -> None:
            begun.set()
            await asyncio.Event().wait()

    async def fail(_: object) -> None:
        raise RuntimeError("a bug in the driver's extend")

    bench.adapter.before["extend"] = fail
    receipt = await dispatch(Endless()).send()
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="a bug in the driver's extend"):
            await bench.worker(lease=0.3, grace=0.0).run()
    assert (await bench.view(receipt.id)).attempt == 0, "what ran is put back"


async def test_an_outage_longer_than_the_lease_cancels_the_runs(bench: Bench) -> None:
    """B34: the handler hears of it before the store can give its job away."""
    begun, ended = asyncio.Event(), asyncio.Event()
    away_since = 0.0
    took: list[float] = []

    class Endless(Job):
        async def handle(self) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                took.append(time.monotonic() - away_since)
                ended.set()

    async def away(_: object) -> None:
        raise StoreUnavailable("gone")

    await dispatch(Endless()).send()
    async with bench.working(lease=0.9) as worker:
        await happens(begun)
        worker.stop()
        away_since = time.monotonic()
        bench.adapter.before["extend"] = away
        async with asyncio.timeout(5):
            await ended.wait()
    assert 0.3 < took[0] < 0.9 + 0.35


async def test_a_loop_that_is_blocked_too_long_loses_its_leases_and_may_recover(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nimbusq.worker.stall.PERIOD", 0.05)
    settings = bench.manager.settings.model_copy(update={"stall_limit": 0.3})
    monkeypatch.setattr(bench.manager, "settings", settings)
    silences: list[float] = []

    class Blocking(Job):
        async def handle(self) -> str:
            if current_job().attempt == 1:
                time.sleep(1.2)  # noqa: ASYNC251  # that is the fault
                return "too late"
            await asyncio.sleep(0.5)
            return "in time"

    receipt = await dispatch(Blocking()).send()
    async with bench.working(lease=0.3, on_dead=silences.append):
        assert await receipt.result(timeout=5) == "in time"
    assert len(silences) == 1
    assert silences[0] > 0.3
    assert await bench.events(receipt.id) == ["push", "claim", "lost", "claim", "done"]
