"""The LeaseKeeper by itself: one call for all, and no renewal for what must not be renewed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from nimbusq.driver import Adapter, Claim, Renewal
from nimbusq.envelope import Envelope
from nimbusq.errors import StoreUnavailable
from nimbusq.worker.keeper import KeeperThread, LeaseKeeper
from tests.unit.worker.bench import PATIENCE


class Store:
    """Answers renewals as the test says, and keeps what it was asked."""

    def __init__(self, answer: Callable[[Claim], Renewal] = lambda _: Renewal.RENEWED) -> None:
        self.answer = answer
        self.calls: list[list[str]] = []
        self.trouble: Exception | None = None
        self.opened = 0
        self.hangs = False
        self.refuses_to_open: Exception | None = None

    async def open(self) -> None:
        if self.refuses_to_open is not None:
            raise self.refuses_to_open
        self.opened += 1

    async def aclose(self) -> None:
        self.opened -= 1

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> list[Renewal]:
        self.calls.append([claim.id for claim in claims])
        if self.hangs:
            await asyncio.Event().wait()
        if self.trouble is not None:
            raise self.trouble
        return [self.answer(claim) for claim in claims]


def as_adapter(store: Store) -> Adapter:
    return cast("Adapter", store)


def claim(job_id: str, token: str = "t") -> Claim:
    envelope = Envelope(id=job_id, name="Probe", queue="default")
    return Claim(id=job_id, queue="default", envelope=envelope, attempt=1, token=token)


class Told:
    """What the keeper has told the worker."""

    def __init__(self, keeper: LeaseKeeper) -> None:
        self.keeper = keeper
        self.lost: list[str] = []
        self.cancelled: list[str] = []

    def register(self, job_id: str, **options: Any) -> Claim:
        held = claim(job_id)
        self.keeper.register(
            held,
            on_lost=lambda: self.lost.append(job_id),
            on_cancel=lambda: self.cancelled.append(job_id),
            **options,
        )
        return held


@pytest.fixture
def told() -> Told:
    return Told(LeaseKeeper(30.0))


async def test_all_claims_are_renewed_in_one_call(told: Told) -> None:
    store = Store()
    for n in range(100):
        told.register(f"j{n}")
    await told.keeper.tick(as_adapter(store), time.monotonic())
    assert store.calls == [[f"j{n}" for n in range(100)]]
    assert (told.lost, told.cancelled) == ([], [])


async def test_without_claims_nothing_is_asked(told: Told) -> None:
    store = Store()
    await told.keeper.tick(as_adapter(store), time.monotonic())
    assert store.calls == []


async def test_a_dropped_claim_is_renewed_no_more(told: Told) -> None:
    """A heartbeat never outlives its run."""
    store = Store()
    told.register("stays")
    told.keeper.drop(told.register("goes"))
    await told.keeper.tick(as_adapter(store), time.monotonic())
    assert store.calls == [["stays"]]
    told.keeper.drop(claim("stays"))
    assert len(told.keeper) == 0


async def test_a_second_claim_of_the_same_job_is_another_one(told: Told) -> None:
    told.register("j")
    told.keeper.drop(claim("j", token="an older one"))
    assert len(told.keeper) == 1


async def test_what_the_store_calls_lost_is_told_once_and_forgotten(told: Told) -> None:
    store = Store(lambda held: Renewal.LOST if held.id == "b" else Renewal.RENEWED)
    for job_id in "abc":
        told.register(job_id)
    for _ in range(2):
        await told.keeper.tick(as_adapter(store), time.monotonic())
    assert told.lost == ["b"]
    assert store.calls == [["a", "b", "c"], ["a", "c"]]


async def test_a_cancel_is_passed_on_and_the_lease_is_kept(told: Told) -> None:
    store = Store(lambda _: Renewal.CANCEL)
    told.register("j")
    for _ in range(2):
        await told.keeper.tick(as_adapter(store), time.monotonic())
    assert told.cancelled == ["j", "j"]
    assert told.lost == []
    assert store.calls == [["j"], ["j"]]


async def test_beyond_its_time_limit_a_run_is_renewed_no_more(told: Told) -> None:
    """A stalled loop cannot fire its own time-outs, so the keeper is the judge."""
    store = Store()
    now = time.monotonic()
    told.register("limited", time_limit=5.0, claimed_at=now)
    told.register("free", claimed_at=now)
    await told.keeper.tick(as_adapter(store), now + 4.9)
    await told.keeper.tick(as_adapter(store), now + 5.1)
    assert store.calls == [["limited", "free"], ["free"]]


async def test_a_worker_that_counts_as_dead_renews_nothing(told: Told) -> None:
    store = Store()
    told.register("j")
    told.keeper.renewing = False
    await told.keeper.tick(as_adapter(store), time.monotonic())
    assert store.calls == []


async def test_without_an_answer_for_nearly_a_lease_the_run_is_given_up(told: Told) -> None:
    """The watchdog: the store may give the job away then, so this worker stops before it does."""
    store = Store()
    store.trouble = StoreUnavailable("gone")
    now = time.monotonic()
    told.register("old", claimed_at=now - 28)
    told.register("young", claimed_at=now - 10)
    with pytest.raises(StoreUnavailable):
        await told.keeper.tick(as_adapter(store), now)
    assert told.lost == ["old"]
    assert len(told.keeper) == 1


async def test_a_renewal_counts_from_when_it_was_asked_for(told: Told) -> None:
    store = Store()
    now = time.monotonic()
    told.register("j", claimed_at=now - 28)
    await told.keeper.tick(as_adapter(store), now - 1)
    store.trouble = StoreUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        await told.keeper.tick(as_adapter(store), now)
    assert told.lost == []


async def test_a_hanging_store_gets_a_sixth_of_the_lease() -> None:
    told = Told(LeaseKeeper(0.6))
    store = Store()
    store.hangs = True
    told.register("j")
    before = time.monotonic()
    with pytest.raises(TimeoutError):
        await told.keeper.tick(as_adapter(store), before)
    assert 0.09 <= time.monotonic() - before < 0.5


# --- the thread ------------------------------------------------------------------------------------------------


def sees(condition: Callable[[], bool]) -> bool:
    """Wait for what another thread must do at once."""
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


async def test_the_thread_renews_while_the_loop_is_blocked() -> None:
    store, crashes = Store(), list[BaseException]()
    told = Told(LeaseKeeper(0.15))
    thread = KeeperThread(told.keeper, as_adapter(store), crashes.append)
    thread.start()
    told.register("j")
    assert sees(lambda: len(store.calls) >= 4), "this test blocks its own loop meanwhile"
    await thread.aclose()
    assert (store.opened, crashes, told.lost) == (0, [], [])


async def test_the_thread_outlives_an_outage() -> None:
    store, crashes = Store(), list[BaseException]()
    told = Told(LeaseKeeper(0.3))
    thread = KeeperThread(told.keeper, as_adapter(store), crashes.append)
    store.trouble = StoreUnavailable("gone")
    thread.start()
    told.register("j")
    assert sees(lambda: told.lost == ["j"])
    store.trouble = None
    told.register("k")
    calls = len(store.calls)
    assert sees(lambda: len(store.calls) > calls)
    await thread.aclose()
    assert (crashes, told.lost) == ([], ["j"])


async def test_a_store_that_cannot_even_be_opened_costs_the_leases_too() -> None:
    """B34: without a connection there is no renewal, and the runs must hear of it within their lease."""
    store, crashes = Store(), list[BaseException]()
    store.refuses_to_open = StoreUnavailable("connection refused")
    told = Told(LeaseKeeper(0.3))
    thread = KeeperThread(told.keeper, as_adapter(store), crashes.append)
    told.register("j")
    thread.start()
    assert sees(lambda: told.lost == ["j"])
    await thread.aclose()
    assert crashes == []


async def test_the_thread_reports_its_own_death() -> None:
    """B08: a worker without a keeper must not go on."""
    store, died = Store(), threading.Event()
    store.trouble = RuntimeError("a bug")
    told = Told(LeaseKeeper(0.06))
    errors: list[BaseException] = []

    def crashed(error: BaseException) -> None:
        errors.append(error)
        died.set()

    thread = KeeperThread(told.keeper, as_adapter(store), crashed)
    told.register("j")
    thread.start()
    assert died.wait(PATIENCE)
    assert [repr(error) for error in errors] == ["RuntimeError('a bug')"]
    await thread.aclose()
