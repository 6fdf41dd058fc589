"""One worker on a carrier and on the store beside it: one set of slots."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from nimbusq import Job, Manager, Settings, Worker, current_job, dispatch, dispatch_many
from nimbusq.driver import Adapter, DriverSettings
from nimbusq.testing.audit import check
from nimbusq_sync import SyncAdapter
from tests.unit.worker.bench import Recorder, until


async def test_both_together_take_no_more_than_the_slots() -> None:
    """Each loop waits with all free slots; jobs that come to both at once must not fill them twice."""
    carrier = SyncAdapter(inline=False, settings=DriverSettings(testing=True))
    carrier.capabilities = replace(carrier.capabilities, driver="plain", atomic=False)
    store = SyncAdapter(inline=False, settings=DriverSettings(testing=True))
    recorders = [Recorder(carrier), Recorder(store)]
    running, most = 0, 0
    done: list[int] = []

    class Counted(Job):
        n: int

        async def handle(self) -> None:
            nonlocal running, most
            assert current_job().attempt == 1
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.005)
            running -= 1
            done.append(self.n)

    manager = Manager(
        cast("Adapter", recorders[0]),
        store=cast("Adapter", recorders[1]),
        settings=Settings(cancel_grace=0.2),
    )
    async with manager:
        worker = Worker(manager, concurrency=3)
        working = asyncio.create_task(worker.run())
        await until(lambda: all(recorder.wants for recorder in recorders))
        plain = [dispatch(Counted(n=n)) for n in range(0, 40, 2)]
        unique = [dispatch(Counted(n=n)).unique(str(n)) for n in range(1, 40, 2)]
        await dispatch_many([*plain, *unique])
        await until(lambda: len(done) == 40)
        worker.stop()
        await working
    assert most == 3
    assert all(want.limit >= 0 for recorder in recorders for want in recorder.wants)
    for adapter in (carrier, store):
        events = await adapter.audit()
        assert check(events) == []
        assert sum(event == "done" for event, *_ in events) == 20


async def test_a_loop_that_waits_asks_for_no_slot_that_the_other_took() -> None:
    recorders = [Recorder(SyncAdapter(inline=False)), Recorder(SyncAdapter(inline=False))]
    carrier, store = recorders
    running, leave = asyncio.Event(), asyncio.Event()

    class Held(Job):
        async def handle(self) -> None:
            running.set()
            await leave.wait()

    manager = Manager(cast("Adapter", carrier), store=cast("Adapter", store))
    async with manager:
        worker = Worker(manager, concurrency=3)
        working = asyncio.create_task(worker.run())
        await until(lambda: bool(carrier.wants and store.wants))
        await dispatch(Held()).unique("k").send()  # into the store
        await until(running.is_set)
        await until(lambda: carrier.wants[-1].limit == 2)
        assert [want.limit for want in carrier.wants] == [3, 2], (
            "the wait for three was ended, and counted anew"
        )
        leave.set()
        worker.stop()
        await working
