"""Layer 4: each public coroutine is cancelled after every number of turns of the loop, and leaves nothing behind.

No lease without a run, no job lost or run twice, no cancellation swallowed, no task left over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from nimbusq import Job, Manager, dispatch, dispatch_many
from nimbusq.batch import Batch
from nimbusq.chain import Chain
from tests.unit.worker.bench import Bench

TICKS = range(31)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Like the shared one, with its audit checked, and every task of the test gone at the end."""
    bench = Bench(cancel_grace=0.2)
    before = asyncio.all_tasks()
    async with bench.manager:
        yield bench
    await asyncio.sleep(0.01)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, "tasks were left behind"
    await bench.assert_sound()


async def cancelled_after(ticks: int, coroutine: Awaitable[Any]) -> bool:
    """Cancel it after that many turns; True when it was cancelled, False when it had ended."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(ticks):
        await asyncio.sleep(0)
    if task.done():
        task.result()
        return False
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    assert task.cancelling() == 0, "its cancellation was swallowed"
    return False


@pytest.mark.parametrize("ticks", TICKS)
async def test_run_once_leaves_no_lease_behind(bench: Bench, ticks: int) -> None:
    class Slow(Job):
        async def handle(self) -> None:
            for _ in range(20):
                await asyncio.sleep(0)

    receipts = await dispatch_many([Slow() for _ in range(3)])
    await cancelled_after(ticks, bench.worker(concurrency=2, lease=60.0).run_once())
    pending, delayed, running = await bench.depth()
    assert (delayed, running) == (0, 0)
    done = [await bench.events(receipt.id) for receipt in receipts]
    assert pending == 3 - sum("done" in events for events in done)
    for receipt in receipts:
        assert (await bench.view(receipt.id)).attempt in (0, 1)


@pytest.mark.parametrize("ticks", TICKS)
async def test_run_puts_back_what_it_has(bench: Bench, ticks: int) -> None:
    class Endless(Job):
        async def handle(self) -> None:
            await asyncio.Event().wait()

    receipts = await dispatch_many([Endless() for _ in range(3)])
    assert await cancelled_after(ticks, bench.worker(concurrency=2, grace=0.0, lease=60.0).run())
    assert await bench.depth() == (3, 0, 0)
    assert [(await bench.view(receipt.id)).attempt for receipt in receipts] == [0, 0, 0]


def sends() -> dict[str, Callable[[], Awaitable[Any]]]:
    class Plain(Job):
        async def handle(self) -> None: ...

    return {
        "send": lambda: dispatch(Plain()).send(),
        "unique": lambda: dispatch(Plain()).unique("k").send(),
        "dispatch_many": lambda: dispatch_many([Plain() for _ in range(4)], chunk=2),
        "chain": lambda: Chain(Plain(), Plain()).send(),
        "batch": lambda: Batch([Plain(), Plain()]).then(Plain()).send(),
    }


@pytest.mark.parametrize("ticks", TICKS[1:])  # before its first step nothing was sent, and the builder warns
@pytest.mark.parametrize("what", ["send", "unique", "dispatch_many", "chain", "batch"])
async def test_a_cancelled_send_has_stored_all_or_nothing(bench: Bench, what: str, ticks: int) -> None:
    await cancelled_after(ticks, sends()[what]())
    pending, *_ = await bench.depth()
    assert pending in {"dispatch_many": (0, 2, 4), "batch": (0, 2)}.get(what, (0, 1))


@pytest.mark.parametrize("ticks", TICKS)
@pytest.mark.parametrize("what", ["result", "cancel", "refresh", "depth"])
async def test_a_cancelled_look_changes_nothing(bench: Bench, what: str, ticks: int) -> None:
    class Plain(Job):
        async def handle(self) -> None: ...

    receipt = await dispatch(Plain()).send()
    looks: dict[str, Callable[[], Awaitable[Any]]] = {
        "result": lambda: receipt.result(timeout=60),
        "cancel": receipt.cancel,
        "refresh": receipt.refresh,
        "depth": bench.manager.depth,
    }
    await cancelled_after(ticks, looks[what]())
    view = await receipt.refresh()
    assert view is not None
    assert view.state in (("ready", "leased", "cancelled") if what == "cancel" else ("ready",))


@pytest.mark.parametrize("ticks", TICKS[1:])
async def test_a_cancelled_inline_send_leaves_its_job_queued_or_done(ticks: int) -> None:
    """The sender runs the job itself: its cancellation is not the job's failure, and it is not swallowed."""
    ended: list[bool] = []

    class Slow(Job):
        async def handle(self) -> None:
            try:
                for _ in range(10):
                    await asyncio.sleep(0)
                ended.append(True)
            except asyncio.CancelledError:
                ended.append(False)
                raise

    async with Manager("sync") as manager:
        cancelled = await cancelled_after(ticks, dispatch(Slow()).send())
        depth = await manager.depth()
        queued = (depth.pending or 0) + (depth.delayed or 0)
        assert depth.running == 0, "a lease was left behind"
        assert queued == (0 if True in ended or not cancelled else 1)
        failed, _ = await manager.require("failed", "failed jobs").page()
        assert failed == []
