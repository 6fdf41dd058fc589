"""The faulty adapter: what fails, what was done all the same, and the same again for the same seed."""

from __future__ import annotations

import asyncio

import pytest

from nimbusq.driver import Adapter, DriverSettings, Lane, Want
from nimbusq.envelope import Envelope
from nimbusq.errors import ConfigError, StoreUnavailable
from nimbusq.testing import FakeClock
from nimbusq.testing.faults import FaultPlan, Faults, FaultyAdapter
from nimbusq_sync import SyncAdapter


def behind(faults: Faults) -> tuple[SyncAdapter, FaultyAdapter]:
    adapter = SyncAdapter(inline=False)
    return adapter, FaultyAdapter(adapter, faults)


def envelope(job_id: str) -> Envelope:
    return Envelope(id=job_id, name="Probe", queue="q")


async def pending(adapter: Adapter) -> int | None:
    (depth,) = await adapter.depth(["q"])
    return depth.pending


async def test_a_lost_request_does_nothing() -> None:
    adapter, faulty = behind(faults := Faults(FaultPlan(before=1.0)))
    with pytest.raises(StoreUnavailable, match="request was lost"):
        await faulty.push([envelope("a")])
    assert await pending(adapter) == 0
    assert (faults.calls, faults.lost_requests, faults.lost_replies) == (1, 1, 0)


async def test_a_lost_reply_does_all() -> None:
    adapter, faulty = behind(faults := Faults(FaultPlan(after=1.0)))
    with pytest.raises(StoreUnavailable, match="reply was lost"):
        await faulty.push([envelope("a")])
    assert await pending(adapter) == 1
    assert (faults.calls, faults.lost_requests, faults.lost_replies) == (1, 0, 1)


async def test_a_cut_lets_so_many_calls_through() -> None:
    adapter, faulty = behind(faults := Faults(FaultPlan(cut_after=2)))
    for job_id in ("a", "b"):
        await faulty.push([envelope(job_id)])
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await faulty.push([envelope("c")])
    assert await pending(adapter) == 2
    faults.heal()
    await faulty.push([envelope("c")])
    assert await pending(adapter) == 3


async def fates(seed: int) -> list[bool]:
    _, faulty = behind(Faults(FaultPlan(before=0.3, after=0.2, seed=seed)))
    answers = await asyncio.gather(
        *(faulty.push([envelope(str(n))]) for n in range(200)), return_exceptions=True
    )
    return [isinstance(answer, StoreUnavailable) for answer in answers]


async def test_the_same_seed_makes_the_same_faults_at_the_asked_rate() -> None:
    first, again, other = await fates(1), await fates(1), await fates(2)
    assert first == again
    assert first != other
    assert 70 <= first.count(True) <= 130


async def test_stores_fail_too() -> None:
    adapter, faulty = behind(Faults(FaultPlan(after=1.0)))
    assert faulty.stores.locker
    assert adapter.stores.locker
    with pytest.raises(StoreUnavailable):
        await faulty.stores.locker.acquire("k", 10)
    assert await adapter.stores.locker.holder("k") is not None


async def test_a_delay_is_waited_on_the_given_clock() -> None:
    clock = FakeClock()
    faults = Faults(FaultPlan(delay=5.0), clock)
    faulty = FaultyAdapter(SyncAdapter(clock=clock, settings=DriverSettings()), faults)
    async with asyncio.TaskGroup() as group:
        pushing = group.create_task(faulty.push([envelope("a")]))
        await asyncio.sleep(0)
        assert not pushing.done()
        await clock.advance(5)
        assert pushing.done()


async def test_it_stands_in_for_the_adapter_and_its_clones_share_the_faults() -> None:
    adapter, faulty = behind(faults := Faults(FaultPlan()))
    stand_in: Adapter = faulty
    assert stand_in.capabilities == adapter.capabilities
    other = faulty.clone()
    await other.open()
    await other.setup(["q"])
    await other.push([envelope("a")])
    want = Want(token="t", limit=1, lease=5, lanes=(Lane(queue="q", limit=1),))
    (claim,) = (await faulty.claim(want)).claims
    await faulty.extend([claim], lease=5)
    assert await faulty.doctor() == await adapter.doctor()
    await other.aclose()
    assert faults.calls == 4
    with pytest.raises(ConfigError):
        FaultyAdapter.from_url("sync://", DriverSettings())
