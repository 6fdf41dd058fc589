"""The claim loop: no more than there are free slots, in the order of the queues, through every trouble."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from nimbusq import Job, dispatch, dispatch_many
from nimbusq.driver import Want
from nimbusq.errors import ConfigError, InvalidName, InvalidOption, StoreUnavailable
from nimbusq.limit import RateLimit
from nimbusq.worker.claims import ClaimLoop
from nimbusq.worker.queues import parse_queues
from nimbusq.worker.slots import Slots
from tests.unit.worker.bench import Bench, happens, until


@pytest.mark.parametrize("count", [1, 3, 10])
async def test_a_claim_asks_for_the_free_slots_and_takes_no_more(bench: Bench, count: int) -> None:
    begun: list[int] = []
    opened = asyncio.Event()

    class Wait(Job):
        n: int

        async def handle(self) -> None:
            begun.append(self.n)
            await opened.wait()

    await dispatch_many([Wait(n=n) for n in range(12)])
    async with bench.working(concurrency=count) as worker:
        await until(lambda: len(begun) == count)
        assert worker.running == count
        assert await bench.depth() == (12 - count, 0, count), "nothing is taken beyond the free slots"
        assert bench.adapter.wants[0].limit == count
        opened.set()
        await until(lambda: len(begun) == 12)
    assert all(want.limit <= count for want in bench.adapter.wants)


async def test_many_slots_are_filled_in_two_calls(bench: Bench) -> None:
    """The second call is under way while the jobs of the first one run."""
    begun: list[int] = []
    opened = asyncio.Event()

    class Wait(Job):
        n: int

        async def handle(self) -> None:
            begun.append(len(bench.adapter.wants))
            await opened.wait()

    await dispatch_many([Wait(n=n) for n in range(100)])
    async with bench.working(concurrency=100):
        await until(lambda: len(begun) == 100)
        first, second = bench.adapter.wants[:2]
        assert (first.limit, second.limit, second.wait) == (50, 50, 0.0), (
            "it does not wait, for there was enough"
        )
        assert begun[0] == 2, "asked for before the first job has run"
        opened.set()


@pytest.mark.parametrize(
    ("concurrency", "at_once"), [(1, 16), (16, 16), (31, 16), (33, 17), (150, 75), (301, 151)]
)
def test_few_slots_are_claimed_for_at_once_and_many_in_halves(concurrency: int, at_once: int) -> None:
    assert Slots(concurrency, {"default": None}, {}).at_once == at_once


class KeyedOrNot(Job):
    async def handle(self) -> None:
        return None


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_slot_is_claimed_for_before_its_run_is_settled(bench: Bench, keyed: bool) -> None:
    """But for a run whose settlement lets another job go: with concurrency 1, the key must be free by the claim."""
    jobs = [dispatch(KeyedOrNot()) for _ in range(3)]
    await dispatch_many([job.without_overlapping("k") for job in jobs] if keyed else jobs)
    verbs: list[str] = []

    async def claimed(_want: object) -> None:
        verbs.append("claim")

    async def settled(_settlements: object) -> None:
        verbs.append("settle")

    bench.adapter.before |= {"claim": claimed, "settle": settled}
    async with bench.working(concurrency=1):
        await until(lambda: verbs.count("settle") == 3)
    expected = ["claim", "settle"] * 3 if keyed else ["claim", "claim", "settle", "claim", "settle"]
    assert verbs[: len(expected)] == expected


async def test_each_want_tells_what_is_free_in_each_queue(bench: Bench) -> None:
    opened = asyncio.Event()
    begun: list[str] = []

    class Letter(Job):
        async def handle(self) -> None:
            begun.append("x")
            await opened.wait()

    await dispatch_many([dispatch(Letter()).on_queue("mail") for _ in range(9)])
    async with bench.working({"mail": 5, "default": None}, concurrency=8):
        await until(lambda: len(begun) == 5)
        await until(lambda: bench.adapter.wants[-1].lanes[0].limit == 0)
        assert [(lane.queue, lane.limit) for lane in bench.adapter.wants[-1].lanes] == [
            ("mail", 0),
            ("default", 3),
        ]
        assert await bench.depth("mail") == (4, 0, 5), "mail:5 fills at most 5 slots of this worker"
        opened.set()
        await until(lambda: len(begun) == 9)


async def test_queues_are_served_in_the_order_in_which_they_were_given(bench: Bench) -> None:
    order: list[str] = []

    class Note(Job):
        text: str

        async def handle(self) -> None:
            order.append(self.text)

    for queue in ("low", "high"):
        await dispatch_many([dispatch(Note(text=queue)).on_queue(queue) for _ in range(3)])
    async with bench.working(["high", "low"], concurrency=1):
        await until(lambda: len(order) == 6)
    assert order == ["high"] * 3 + ["low"] * 3


async def test_with_no_free_slot_it_still_collects_lost_leases(bench: Bench) -> None:
    begun, opened = asyncio.Event(), asyncio.Event()

    class Wait(Job):
        async def handle(self) -> None:
            begun.set()
            await opened.wait()

    lost = await bench.push("Elsewhere", max_attempts=1)
    await bench.claim(lease=0.2)
    await dispatch(Wait()).send()
    async with bench.working(concurrency=1, lease=0.6):
        await happens(begun)
        assert (await bench.view(lost)).state == "leased"
        async with asyncio.timeout(5):
            while (await bench.view(lost)).state != "failed":
                await asyncio.sleep(0.01)
        opened.set()
    assert 0 in [want.limit for want in bench.adapter.wants]
    assert "WorkerLost" in (await bench.view(lost)).error


async def test_after_a_lost_reply_the_same_token_asks_again(bench: Bench) -> None:
    done = asyncio.Event()
    failures = 2

    class Once(Job, retries=0):
        async def handle(self) -> None:
            done.set()

    async def lose_the_reply(want: Want, answer: object) -> None:
        nonlocal failures
        if failures and want.limit:
            failures -= 1
            raise StoreUnavailable("the reply was lost")

    receipt = await dispatch(Once()).send()
    bench.adapter.after["claim"] = lose_the_reply
    async with bench.working():
        await happens(done)
    first, second, third, *_ = bench.adapter.wants
    assert first.token == second.token == third.token
    assert await bench.events(receipt.id) == ["push", "claim", "done"], "one claim, one attempt"


async def test_one_error_of_the_driver_is_survived(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """B08: raise once."""
    done = asyncio.Event()
    failures = 1

    class Once(Job):
        async def handle(self) -> None:
            done.set()

    async def fail(_: object) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("a bug in the driver")

    bench.adapter.before["claim"] = fail
    await dispatch(Once()).send()
    async with bench.working():
        await happens(done)
    assert "a bug in the driver" in caplog.text
    assert "Traceback" in caplog.text, "a bug is logged with its traceback"


async def test_an_error_that_stays_ends_the_worker_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B08: raise for ever."""
    monkeypatch.setattr("nimbusq.worker.pace.CAP", 0.01)
    monkeypatch.setattr("nimbusq.worker.pace.FIRST", 0.001)

    async def fail(_: object) -> None:
        raise RuntimeError("a bug in the driver")

    bench.adapter.before["claim"] = fail
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="a bug in the driver"):
            await bench.worker().run()


async def test_an_outage_is_waited_out_however_long_it_takes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nimbusq.worker.pace.CAP", 0.001)
    monkeypatch.setattr("nimbusq.worker.pace.FIRST", 0.001)
    done = asyncio.Event()
    tries = 0

    class Once(Job):
        async def handle(self) -> None:
            done.set()

    async def away(_: object) -> None:
        nonlocal tries
        tries += 1
        if tries < 50:
            raise StoreUnavailable("connection refused")

    bench.adapter.before["claim"] = away
    await dispatch(Once()).send()
    with caplog.at_level(logging.WARNING):
        async with bench.working():
            await happens(done)
    assert caplog.text.count("connection refused") == 1, "at most one line in 5 s"


async def test_a_backlog_of_settlements_holds_the_claims(bench: Bench) -> None:
    """A store that settles slowly is not given more to do."""
    go_on = asyncio.Event()
    done: list[int] = []

    class Quick(Job):
        n: int

        async def handle(self) -> None:
            done.append(self.n)

    async def wait(_: object) -> None:
        await go_on.wait()

    bench.adapter.before["settle"] = wait
    await dispatch_many([Quick(n=n) for n in range(50)])
    async with bench.working(concurrency=2, lease=30.0):
        await until(lambda: len(done) >= 5)
        await asyncio.sleep(0.05)
        assert len(done) <= 10, "a few rounds of both slots wait, and no more is claimed"
        go_on.set()
        await until(lambda: len(done) == 50)


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("default", {"default": None}),
        ("mail:5", {"mail": 5}),
        (["mail:5", "default"], {"mail": 5, "default": None}),
        ({"mail": 5, "default": None}, {"mail": 5, "default": None}),
    ],
)
def test_queues_and_their_limits(given: object, parsed: dict[str, int | None]) -> None:
    assert parse_queues(given) == parsed  # type: ignore[arg-type]  # each form that Worker takes


@pytest.mark.parametrize("given", [[], {}, "mail:0", "mail:x", "mail:", {"mail": 0}, {"mail": True}])
def test_limits_that_make_no_sense(given: object) -> None:
    with pytest.raises(ConfigError):
        parse_queues(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["", "a b", ":5", "../x", {"": None}])
def test_queue_names_outside_the_grammar(given: object) -> None:
    with pytest.raises(InvalidName):
        parse_queues(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, "3"])
async def test_concurrency_is_a_whole_number_above_zero(bench: Bench, concurrency: object) -> None:
    with pytest.raises(InvalidOption, match="concurrency"):
        bench.worker(concurrency=concurrency)


@pytest.mark.parametrize("lease", [0, -1, float("nan"), float("inf"), "60"])
async def test_a_lease_is_a_number_of_seconds(bench: Bench, lease: object) -> None:
    with pytest.raises(InvalidOption, match="lease"):
        bench.worker(lease=lease)


async def test_a_worker_that_is_busy_for_long_stays_ready(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all slots taken it asks the store every third of the lease only: that is no reason for a red light."""
    clock = [1000.0]
    worker = bench.worker(concurrency=1, lease=120.0)
    monkeypatch.setattr("nimbusq.worker.worker.time.monotonic", lambda: clock[0])
    for station in worker._stations:
        station.claims.claimed_at = clock[0]
    assert worker.ready
    clock[0] += 45
    assert worker.ready, "the next sweep is due every 40 s"
    clock[0] += 60
    assert not worker.ready


async def test_a_rate_that_holds_one_queue_back_makes_the_worker_deaf_to_no_other() -> None:
    """With one slot each claim brings all it asked for, so that the next does not wait; it must not rest, either."""
    order: list[str] = []

    class Slowed(Job):
        kind: str

        async def handle(self) -> None:
            order.append(self.kind)

    bench = Bench(rate_limits={"mail": RateLimit(per_second=0.01, burst=1)})
    async with bench.manager:
        await dispatch_many([dispatch(Slowed(kind="mail")).on_queue("mail") for _ in range(3)])
        async with bench.working({"default": None, "mail": None}, concurrency=1):
            for n in range(3):
                await dispatch(Slowed(kind="default")).send()
                await until(lambda n=n: order.count("default") == n + 1)  # type: ignore[misc]  # n is bound at once
    assert order.count("mail") == 1


async def test_a_waiting_claim_is_ended_however_often_slots_change_meanwhile(bench: Bench) -> None:
    """Each change looks whether the waiting is to end, and must not put off the end that is under way."""
    slots, loop = Slots(4, {"default": None}, {}), asyncio.get_running_loop()
    settler: Any = SimpleNamespace(backlog=0, nudge=lambda: None)
    async with bench.manager:
        claiming = ClaimLoop(
            bench.manager.adapter, slots, settler, lease=60.0, take=Mock(), reclaimed=AsyncMock()
        )
        ended = asyncio.create_task(claiming.run())

        def change() -> None:
            if not ended.done():
                loop.call_soon(change)  # at the front of each pass of the event loop
                slots.nudge()

        await until(lambda: bool(bench.adapter.wants))
        claiming.stop()
        change()
        async with asyncio.timeout(1.0):
            await ended
