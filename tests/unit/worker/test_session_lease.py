"""Drivers that keep their leases alive by themselves: the worker still hears of losses, and lets nothing hang."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nimbusq import Manager, Settings, Worker, current_job, dispatch, job
from nimbusq.driver import Claim, Renewal
from nimbusq_sync import SyncAdapter


class SessionAdapter(SyncAdapter):
    """The sync driver under kafka's lease: nothing runs out while the worker lives, and a session loses runs."""

    lost: set[str]

    def __init__(self, **of_a_clone: Any) -> None:
        super().__init__(**{"inline": False, **of_a_clone})
        self.capabilities = replace(self.capabilities, lease="session")
        self.lost = set()

    def clone(self) -> SessionAdapter:
        twin = super().clone()
        twin.lost = self.lost
        return twin

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:
        return [Renewal.LOST if claim.id in self.lost else Renewal.RENEWED for claim in claims]


@pytest.fixture
async def manager(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Manager]:
    monkeypatch.setattr("nimbusq.worker.station.SESSION_LOOK", 0.15)
    async with Manager(SessionAdapter(), settings=Settings(cancel_grace=0.1)) as manager:
        yield manager


async def test_a_run_that_the_session_lost_is_cut(manager: Manager) -> None:
    began, seen = asyncio.Event(), asyncio.Event()

    @job
    async def waits() -> None:
        began.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if current_job().lease_lost:
                seen.set()
            raise

    worker = Worker(manager)
    running = asyncio.create_task(worker.run())
    receipt = await dispatch(waits).send()
    async with asyncio.timeout(5):
        await began.wait()
        assert isinstance(manager.adapter, SessionAdapter)
        manager.adapter.lost.add(receipt.id)
        await seen.wait()
    worker.stop()
    await running


async def test_an_abandoned_run_is_settled_since_no_lease_will_run_out(manager: Manager) -> None:
    free = asyncio.Event()

    @job(timeout=0.1, retries=0)
    async def stubborn() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    worker = Worker(manager)
    running = asyncio.create_task(worker.run())
    receipt = await dispatch(stubborn).send()
    async with asyncio.timeout(5):
        while (view := await receipt.refresh()) is None or view.state != "failed":
            await asyncio.sleep(0.01)
    assert worker.abandoned == 1
    record = await manager.require("failed", "").get(receipt.id)
    assert record.kind == "JobTimeout"
    free.set()
    worker.stop()
    await running
