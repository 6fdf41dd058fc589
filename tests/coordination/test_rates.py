"""Rates per queue and per key: for the whole fleet, on the store's clock, spent only by jobs that start."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from nimbusq import Manager, Settings, UnsupportedByDriver, Worker, dispatch, dispatch_many
from nimbusq.driver import JobLimiter, Lane, Reserved, Stores
from nimbusq.envelope import Rate
from nimbusq.errors import InvalidOption, StoreUnavailable
from nimbusq.limit import RateLimit
from nimbusq.testing.clock import FakeClock
from nimbusq.worker.rates import LocalLimiter, RateGate
from nimbusq_sync import SyncAdapter
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop

log = logging.getLogger(__name__)


def starts(place: Place, of: str = "") -> list[float]:
    """When each job was claimed, on the store's clock, in order."""
    return sorted(float(line[4]) for line in place.notes("start") if line[2].startswith(of))


async def store_time(manager: Manager) -> float:
    return float(await manager.require("schedules", "").now())


def assert_within(times: Sequence[float], since: float, per_second: float, burst: int) -> None:
    """At no moment had more than burst + rate · t started.

    A claim's time is read after its rate was spent, never before, so that this holds without any tolerance.
    """
    for count, moment in enumerate(times, 1):
        allowed = burst + per_second * (moment - since)
        assert count <= allowed + 1e-3, f"{count} starts in {moment - since:.3f} s"


async def test_two_processes_share_twenty_a_second(shared: Place) -> None:
    """Burst 1: 19 intervals of 50 ms lie between the first and the 20th start."""
    async with shared.manager() as manager:
        idle = [shared.start("worker", RATE=20, LEASE=2) for _ in range(2)]
        async with asyncio.timeout(20):
            while len(await manager.require("workers", "").list()) < 2:
                await asyncio.sleep(0.02)
        since = await store_time(manager)
        await dispatch_many([dispatch(shop.step, f"j{n}") for n in range(20)])
        await shared.until_empty(manager)
        assert all(process.poll() is None for process in idle)
    times = starts(shared)
    log.info("from the first to the 20th start: %.3f s", times[-1] - times[0])
    assert shared.counts("end") == {f"j{n}": 1 for n in range(20)}
    assert {line[3] for line in shared.notes("start")} == {"1"}
    assert_within(times, since, 20, 1)
    assert times[-1] - times[0] >= 0.94, "19 intervals take 0.95 s; the first claim took its part of them"
    assert times[-1] - times[0] < 3.0, "the rate is not used"


async def test_idle_workers_hold_no_starts_back_for_a_burst(here: Place) -> None:
    """16 workers wait, then 100 jobs come: burst 5, then 200 a second."""
    limits = {"default": RateLimit(per_second=200, burst=5)}
    async with here.manager(rate_limits=limits) as manager:
        idle = [Worker(manager, concurrency=1, lease=3) for _ in range(16)]
        async with workers(*idle):
            await asyncio.sleep(0.5)
            since = await store_time(manager)
            await dispatch_many([dispatch(shop.step, f"j{n}") for n in range(100)])
            await here.until_empty(manager)
    times = starts(here)
    assert len(times) == 100
    assert_within(times, since, 200, 5)


async def test_a_limited_queue_neither_holds_leases_nor_another_queue(here: Place) -> None:
    """B22: ten jobs at 6 a second with a lease of 0.6 s, while another queue is served at once."""
    limits = {"limited": RateLimit(per_second=6)}
    delays = []
    async with here.manager(rate_limits=limits) as manager:
        fleet = [Worker(manager, ["limited", "free"], concurrency=4, lease=0.6) for _ in range(3)]
        async with workers(*fleet):
            since = await store_time(manager)
            await dispatch_many([dispatch(shop.step, f"limited{n}").on_queue("limited") for n in range(10)])
            for n in range(20):
                sent_at = time.monotonic()
                await dispatch(shop.step, f"free{n}").on_queue("free").send()
                await here.until(
                    lambda n=n: bool(here.counts("start")[f"free{n}"]), "the free job's start", 10
                )
                (started,) = [float(line[0]) for line in here.notes("start") if line[2] == f"free{n}"]
                delays.append(started - sent_at)
            await here.until_empty(manager, "limited", "free")
        counters = [worker.counters.get("limited", {}) for worker in fleet]
    times = starts(here, "limited")
    assert len(times) == 10
    assert_within(times, since, 6, 1)
    assert times[-1] - since < 2.5, "nine beyond the burst take 1.5 s"
    assert {line[3] for line in here.notes("start")} == {"1"}
    assert sum(counter.get("reclaimed", 0) for counter in counters) == 0
    assert sorted(delays)[18] < 0.1, f"p95 of the free queue: {sorted(delays)}"


async def test_a_rate_per_key_counts_for_the_whole_fleet_and_costs_no_attempt(here: Place) -> None:
    async with here.manager() as manager:
        since = await store_time(manager)
        await dispatch_many([dispatch(shop.step, f"a{n}").rate_limit("api", 20) for n in range(10)])
        await dispatch_many(
            [dispatch(shop.step, f"b{n}").rate_limit("other", 20, burst=10) for n in range(10)]
        )
        async with workers(Worker(manager, lease=2), Worker(manager, lease=2)):
            await here.until_empty(manager)
    assert len(starts(here, "a")) == 10
    assert_within(starts(here, "a"), since, 20, 1)
    assert starts(here, "b")[-1] - since < 0.4, "ten of the other key may start at once"
    assert {line[3] for line in here.notes("start")} == {"1"}


async def test_a_job_without_slots_or_that_expired_spends_nothing(here: Place) -> None:
    limits = {"default": RateLimit(per_second=0.2)}
    async with here.manager(rate_limits=limits) as manager:
        gone = await dispatch(shop.step, "expired").expires(0.05).send()
        await asyncio.sleep(0.1)
        await dispatch(shop.step, "runs").send()
        async with workers(Worker(manager, lease=2)):
            await here.until(lambda: bool(here.counts("end")), "the start", within=4)
            await here.until_empty(manager)
        view = await gone.refresh()
        assert view is not None
        assert view.state == "cancelled"


async def test_pushes_are_not_limited(here: Place) -> None:
    limits = {"default": RateLimit(per_second=0.1)}
    async with here.manager(rate_limits=limits) as manager:
        begin = time.monotonic()
        await dispatch_many([dispatch(shop.step, f"j{n}") for n in range(50)])
        assert time.monotonic() - begin < 5.0
        assert (await manager.depth()).pending == 50


async def test_per_process_gives_each_process_the_full_rate(here: Place) -> None:
    """Asked for explicitly: two workers of their own limits start twice as many."""
    limits = {"default": RateLimit(per_second=10, burst=2, per_process=True)}
    async with here.manager(rate_limits=limits) as manager:
        since = await store_time(manager)
        await dispatch_many([dispatch(shop.step, f"j{n}") for n in range(16)])
        async with workers(Worker(manager, lease=2), Worker(manager, lease=2)):
            await here.until_empty(manager)
    times = starts(here)
    assert len(times) == 16
    assert_within(times, since, 20, 4)
    assert times[-1] - since < 1.0, "twelve beyond the two bursts take 0.6 s at twice ten a second"


async def test_a_rate_of_one_process_is_exact() -> None:
    """20 at 20 a second with a burst of 1 take 19 intervals of 50 ms; the 20th is not granted before."""
    clock = FakeClock()
    limiter, rate = LocalLimiter(clock), RateLimit(per_second=20).of_queue("default")
    begin, granted = clock.monotonic(), 0
    while granted < 20:
        reserved = await limiter.reserve(rate, 20)
        granted += reserved.granted
        if granted < 20:
            await clock.advance(reserved.retry_after)
    assert clock.monotonic() - begin == pytest.approx(0.95)


# --- settings ----------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    settings = Settings(driver="memory")
    assert settings.rate_of("default") is None
    assert settings.rate_limit_burst == 10
    assert RateLimit(per_second=2.5).burst == 1
    every = Settings(driver="memory", rate_limit_per_sec=20, rate_limits={"mail": RateLimit(per_second=1)})
    assert every.rate_of("default") == RateLimit(per_second=20, burst=10)
    assert every.rate_of("mail") == RateLimit(per_second=1, burst=1)


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_RATE_LIMIT_PER_SEC", "2.5")
    monkeypatch.setenv("QUEUE_RATE_LIMIT_BURST", "3")
    assert Settings(driver="memory").rate_of("any") == RateLimit(per_second=2.5, burst=3)


@pytest.mark.parametrize(
    ("per_second", "burst"),
    [(0, 1), (-1, 1), (float("inf"), 1), (float("nan"), 1), (1, 0), (1, 1.5), (1, True)],
)
def test_a_rate_out_of_range_is_refused(per_second: float, burst: Any) -> None:
    with pytest.raises(InvalidOption):
        dispatch(shop.step, "x").rate_limit("k", per_second, burst)


# --- drivers without rates ---------------------------------------------------------------------------------------


def test_without_a_limiter_a_shared_rate_is_refused_with_its_remedy() -> None:
    limits = {"default": RateLimit(per_second=1)}
    manager = Manager(settings=Settings(driver="sqs://default", rate_limits=limits))
    with pytest.raises(UnsupportedByDriver, match=r"rate limits shared by all workers.*QUEUE_STORE_URL"):
        Worker(manager)
    own = {"default": RateLimit(per_second=1, per_process=True)}
    Worker(Manager(settings=Settings(driver="sqs://default", rate_limits=own)))


class Carrier(SyncAdapter):
    """A driver that ties no jobs together and has no rates, with a limiter beside it."""

    def __init__(self, limiter: JobLimiter | None = None, **of_a_clone: Any) -> None:
        super().__init__(**{"inline": False, **of_a_clone})
        self.capabilities = replace(self.capabilities, driver="carrier", atomic=False)
        self.stores: Stores = Stores(limiter=limiter, jobs=self.stores.jobs)


class Flaky:
    """A limiter that is away until it is healed."""

    def __init__(self) -> None:
        self.away = True
        self.given_back = 0.0
        self.asked = 0

    async def reserve(self, rate: Rate, n: int = 1) -> Reserved:
        self.asked += 1
        if self.away:
            raise StoreUnavailable("the limiter is away")
        return Reserved(n)

    async def give_back(self, rate: Rate, n: float = 1) -> None:
        self.given_back += n


async def test_a_limiter_that_is_away_holds_its_own_queue_only(tmp_path: Any) -> None:
    limiter = Flaky()
    settings = Settings(driver="memory", rate_limits={"limited": RateLimit(per_second=1000)})
    place = Place("memory://", tmp_path)
    async with Manager(cast("Any", Carrier(limiter)), settings=settings) as manager:
        await dispatch(shop.step, "limited").on_queue("limited").send()
        async with workers(Worker(manager, ["limited", "free"], lease=2)):
            for n in range(5):
                sent_at = time.monotonic()
                await dispatch(shop.step, f"free{n}").on_queue("free").send()
                await place.until(lambda n=n: bool(place.counts("end")[f"free{n}"]), "the free job's end", 5)
                assert time.monotonic() - sent_at < 0.4
            assert "limited" not in place.counts("start")
            assert limiter.asked > 0
            limiter.away = False
            await place.until(lambda: bool(place.counts("end")["limited"]), "the limited job's end", 5)
            await asyncio.sleep(0.6)
            assert limiter.given_back > 0, "an idle worker holds no starts"


async def test_what_is_held_while_others_start_is_not_given_back_on_top(tmp_path: Any) -> None:
    """One reserves and waits for an empty queue longer than an interval; another starts a job meanwhile. What the
    first gives back then must not let a third one start at once."""
    clock = FakeClock()
    limiter: Any = SyncAdapter(inline=False, clock=clock).stores.limiter
    gate = RateGate(limiter, LocalLimiter(clock), frozenset(), clock)
    lanes = (Lane(queue="default", limit=5, rate=Rate(key="k", per_second=10)),)
    held = await gate.admit(lanes)
    assert held.lanes[0].limit == 1
    await clock.advance(0.1)
    assert (await gate.admit(lanes)).lanes[0].limit == 1, "the next start is due"
    await clock.advance(0.02)
    await gate.settle_up(held, [])
    refused = await gate.admit(lanes)
    assert (refused.lanes[0].limit, refused.retry_after) == (0, pytest.approx(0.08))
    await clock.advance(0.08)
    unused = await gate.admit(lanes)
    await gate.settle_up(unused, [])
    assert (await gate.admit(lanes)).lanes[0].limit == 1, "what was given back at once can be taken at once"
