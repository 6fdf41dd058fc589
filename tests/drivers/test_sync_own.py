"""What is the sync driver's own: clones in other threads, no polling, bounded memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from nimbusq.driver import (
    Claim,
    Done,
    DriverSettings,
    HistoryRow,
    Lane,
    Pushed,
    PutBack,
    Renewal,
    Settlement,
    SettleStatus,
    Want,
)
from nimbusq.envelope import Envelope, Overlap
from nimbusq.errors import ConfigError, UnsupportedByDriver
from nimbusq.testing import FakeClock
from nimbusq_sync import SyncAdapter

T = TypeVar("T")


def job(job_id: str, **fields: Any) -> Envelope:
    return Envelope(**{"id": job_id, "name": "Probe", "queue": "q", **fields})


def want(token: str, limit: int = 10, **fields: Any) -> Want:
    defaults: dict[str, Any] = {"lease": 30.0, "lanes": (Lane(queue="q", limit=limit),)}
    return Want(token=token, limit=limit, **{**defaults, **fields})


async def claim_one(adapter: SyncAdapter, token: str = "t1") -> Claim:
    (claim,) = (await adapter.claim(want(token))).claims
    return claim


async def settle(adapter: SyncAdapter, claim: Claim, outcome: Any = None) -> SettleStatus:
    (settled,) = await adapter.settle([Settlement(claim=claim, outcome=outcome or Done())])
    return settled.status


async def in_a_thread(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the call on another thread's own event loop, as the keeper thread does."""
    return await asyncio.to_thread(lambda: asyncio.run(call()))


@pytest.mark.parametrize(
    ("url", "inline"), [("sync", True), ("sync://", True), ("memory", False), ("memory://", False)]
)
def test_urls_choose_the_mode(url: str, inline: bool) -> None:
    adapter = SyncAdapter.from_url(url, DriverSettings())
    assert adapter.capabilities.inline is inline
    assert adapter.clone().capabilities.inline is inline


@pytest.mark.parametrize("url", ["sync://host", "memory:///file", "redis://", "sync?x=1", ""])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="sync:// or memory://"):
        SyncAdapter.from_url(url, DriverSettings())


async def test_two_adapters_share_nothing_a_clone_shares_all() -> None:
    first, second = SyncAdapter(), SyncAdapter()
    await first.push([job("a")])
    assert (await second.claim(want("t1"))).claims == []
    assert (await claim_one(first.clone())).id == "a"


async def test_the_clock_and_the_audit_are_for_tests() -> None:
    adapter = SyncAdapter()
    with pytest.raises(ConfigError, match="testing"):
        await adapter.advance(1)
    with pytest.raises(ConfigError, match="testing"):
        await adapter.audit()


async def test_the_skew_moves_the_real_clock() -> None:
    adapter = SyncAdapter(settings=DriverSettings(testing=True))
    await adapter.push([job("a", delay=3600.0)])
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(adapter.claim(want("t1", wait=60.0)))
        await asyncio.sleep(0)
        await adapter.advance(3600)
    assert [claim.id for claim in waiting.result().claims] == ["a"]


async def test_a_transaction_is_refused_by_both_verbs() -> None:
    adapter = SyncAdapter()
    for call in (adapter.push, adapter.settle):
        with pytest.raises(UnsupportedByDriver):
            await call([], tx=object())


async def test_a_lease_is_renewed_from_another_thread() -> None:
    adapter = SyncAdapter()
    await adapter.push([job("a")])
    claim = await claim_one(adapter)
    keeper = adapter.clone()
    assert await in_a_thread(lambda: keeper.extend([claim], lease=60)) == [Renewal.RENEWED]
    assert await settle(adapter, claim) is SettleStatus.SETTLED
    assert await in_a_thread(lambda: keeper.extend([claim], lease=60)) == [Renewal.LOST]


async def test_a_push_in_another_thread_wakes_a_waiting_claim() -> None:
    adapter = SyncAdapter()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(adapter.claim(want("t1", wait=60.0)))
        await asyncio.sleep(0)
        assert await in_a_thread(lambda: adapter.clone().push([job("a")])) == [Pushed("a")]
    assert [claim.id for claim in waiting.result().claims] == ["a"]


async def test_threads_never_share_a_job() -> None:
    adapter = SyncAdapter()
    await adapter.push([job(str(n)) for n in range(2000)])
    start = threading.Barrier(4)

    async def drain(name: int) -> list[str]:
        own, found = adapter.clone(), []
        start.wait()
        for n in range(2000):
            claims = (await own.claim(want(f"{name}/{n}", 3))).claims
            if not claims:
                break
            found += [claim.id for claim in claims]
            await own.settle([Settlement(claim=claim, outcome=Done()) for claim in claims])
        return found

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(in_a_thread(lambda n=n: drain(n))) for n in range(4)]  # type: ignore[misc]  # n is bound at once
    found = [job_id for task in tasks for job_id in task.result()]
    assert sorted(found, key=int) == [str(n) for n in range(2000)]


class CountingClock(FakeClock):
    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await super().sleep(seconds)


async def test_a_waiting_claim_sleeps_until_something_happens_and_does_not_poll() -> None:
    clock = CountingClock()
    adapter = SyncAdapter(clock=clock)
    await adapter.push([job("late", delay=40.0)])
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(adapter.claim(want("t1", wait=60.0)))
        await clock.advance(39)
        assert clock.sleeps == [40.0]
        await clock.advance(1)
    assert [claim.id for claim in waiting.result().claims] == ["late"]
    assert clock.next_wake is None


async def test_an_ended_lease_wakes_a_waiting_claim() -> None:
    clock = CountingClock()
    adapter = SyncAdapter(clock=clock)
    await adapter.push([job("a")])
    lost = await claim_one(adapter)
    await adapter.extend([lost], lease=40)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiting = group.create_task(adapter.claim(want("t2", wait=60.0)))
        await clock.advance(40)
    (claim,) = waiting.result().claims
    assert (claim.id, claim.attempt, claim.reclaimed) == ("a", 2, True)
    assert clock.sleeps == [30.0, 10.0], "once at the lease's first end, once at its renewed one"


async def test_repeated_settlements_are_known_for_a_minute() -> None:
    clock = FakeClock()
    adapter = SyncAdapter(clock=clock)
    await adapter.push([job("a"), job("b")])
    ended, put_back = (await adapter.claim(want("t1"))).claims
    await settle(adapter, ended)
    await settle(adapter, put_back, PutBack(30))
    assert await settle(adapter, ended) is SettleStatus.ALREADY
    assert await settle(adapter, put_back, PutBack(30)) is SettleStatus.ALREADY
    assert await adapter.push([job("a")]) == [Pushed("a")]
    assert (await adapter.depth(["q"]))[0].pending == 0, "a job that ended is not pushed again"
    await clock.advance(61)
    assert await settle(adapter, ended) is SettleStatus.LOST


async def test_memory_follows_the_live_jobs() -> None:
    adapter = SyncAdapter(settings=DriverSettings(history_limit=100))
    state = adapter._state
    jobs = adapter.stores.jobs
    assert jobs
    for n in range(11_000):
        await adapter.push([job(str(n), delay=9999.0 * (n % 2))])
        claim = (
            await jobs.cancel(str(n), token=f"t{n}", lease=30) if n % 2 else await claim_one(adapter, f"t{n}")
        )
        assert isinstance(claim, Claim)
        row = HistoryRow(id=str(n), queue="q", name="Probe", state="done", attempt=1)
        await adapter.settle([Settlement(claim=claim, outcome=Done(), history=row)])
    lines = state.queues["q"].lines.values()
    entries = [state.leases, *(agenda for line in lines for agenda in (line.ready, line.delayed))]
    assert [len(agenda._entries) <= 65 for agenda in entries] == [True] * 3
    assert (len(state.rows), len(state.held), len(state.history)) == (0, 0, 100)
    assert len(state.tombstones._graves) == 10_000


async def test_history_keeps_the_newest_for_its_time() -> None:
    clock = FakeClock()
    adapter = SyncAdapter(clock=clock, settings=DriverSettings(history_limit=3, history_ttl=60.0))
    history = adapter.stores.history
    assert history
    for n in range(5):
        await history.push([HistoryRow(id=str(n), queue="q", name="Probe", state="done", attempt=1)])
        await clock.advance(10)
    assert [row.id for row in (await history.page())[0]] == ["4", "3", "2"]
    await clock.advance(35)
    assert [row.id for row in (await history.page())[0]] == ["4", "3"]


async def test_a_free_job_behind_very_many_blocked_ones_is_found_in_one_call() -> None:
    adapter = SyncAdapter()
    blocked = Overlap(key="k", release_after=60.0)
    await adapter.push([job(f"b{n}", overlap=blocked) for n in range(2000)])
    (holder,) = (await adapter.claim(want("t1", 1))).claims
    await adapter.push([job("free")])
    assert [claim.id for claim in (await adapter.claim(want("t2"))).claims] == ["free"]
    await adapter.settle([Settlement(claim=holder, outcome=Done())])
    depth = (await adapter.depth(["q"]))[0]
    assert (depth.pending, depth.delayed, depth.running) == (0, 1999, 1)
