"""Settling: in groups, until the store answers, and never with another worker's job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from nimbusq import Job, Observer, dispatch, dispatch_many, job
from nimbusq.driver import Claim, Done, Settlement
from nimbusq.envelope import ChainRest
from nimbusq.errors import StoreUnavailable
from tests.unit.worker.bench import Bench, Diary, happens, until


async def test_what_ends_during_a_round_trip_goes_out_together_in_the_next(bench: Bench) -> None:
    go_on = asyncio.Event()
    done: list[int] = []

    class Quick(Job):
        n: int

        async def handle(self) -> None:
            done.append(self.n)

    async def hold_the_first(_: object) -> None:
        if len(bench.adapter.settlements) == 1:
            await go_on.wait()

    bench.adapter.before["settle"] = hold_the_first
    async with bench.working(concurrency=30) as worker:
        await dispatch(Quick(n=0)).send()
        await until(lambda: len(bench.adapter.settlements) == 1)
        await dispatch_many([Quick(n=n) for n in range(1, 25)])
        await until(lambda: len(done) == 25 and not worker.running)
        assert len(bench.adapter.settlements) == 1
        go_on.set()
        await until(lambda: len(bench.adapter.settlements) > 1)
    assert [len(group) for group in bench.adapter.settlements] == [1, 24]


async def test_after_a_lost_reply_the_same_settlement_is_sent_again(bench: Bench) -> None:
    """B48: done in the store, unknown to the worker; the second answer is ALREADY, and it counts once."""
    bench.manager.observers.add(diary := Diary())
    failures = 2

    class Once(Job):
        async def handle(self) -> int:
            return 7

    async def lose_the_reply(_: object, answer: object) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailable("the reply was lost")

    bench.adapter.after["settle"] = lose_the_reply
    receipt = await dispatch(Once()).send()
    async with bench.working() as worker:
        await until(lambda: diary.heard != [])
    assert len(bench.adapter.settlements) == 3
    assert len({group[0].claim.token for group in bench.adapter.settlements}) == 1
    assert await bench.events(receipt.id) == ["push", "claim", "done"]
    assert await receipt.result(timeout=1) == 7
    assert worker.counters == {"default": {"processed": 1}}
    assert diary.heard == [("processed", None)]


async def test_a_history_row_is_made_where_it_is_kept(bench: Bench) -> None:
    @job
    async def plain() -> None: ...

    await dispatch(plain).send()
    await bench.worker().run_once()
    bench.adapter.wrapped.stores = replace(bench.adapter.wrapped.stores, history=None)
    await dispatch(plain).send()
    await bench.worker().run_once()
    rows = [settlement.history for group in bench.adapter.settlements for settlement in group]
    assert [row is not None for row in rows] == [True, False]


async def test_a_settlement_is_given_up_when_its_lease_has_lapsed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nimbusq.worker.pace.FIRST", 0.05)
    monkeypatch.setattr("nimbusq.worker.pace.CAP", 0.05)
    done: list[int] = []

    class Twice(Job):
        async def handle(self) -> None:
            done.append(1)

    async def fail_the_first(settlements: Sequence[Settlement]) -> None:
        if settlements[0].claim.attempt == 1:
            raise StoreUnavailable("gone")

    bench.adapter.before["settle"] = fail_the_first
    receipt = await dispatch(Twice()).send()
    async with bench.working(lease=0.3):
        await until(lambda: "could not be settled within its lease" in caplog.text)
        await until(lambda: len(done) == 2)
    assert await bench.events(receipt.id) == ["push", "claim", "lost", "claim", "done"]


async def test_one_job_whose_end_cannot_be_told_does_not_hold_the_others(bench: Bench) -> None:
    """The next link of its chain is not readable: that is this job's failure, not the worker's."""
    done = asyncio.Event()

    class Link(Job):
        async def handle(self) -> None: ...

    class Bystander(Job):
        async def handle(self) -> None:
            done.set()

    broken = await bench.push("Link", chain=ChainRest(id="c1", rest=("not an envelope",)))
    await dispatch(Bystander()).send()
    async with bench.working() as worker:
        await happens(done)
        await until(lambda: not worker.running)
    view = await bench.view(broken)
    assert view.state == "failed"
    assert "link 1 of chain c1" in view.error


async def test_one_that_cannot_be_stored_does_not_hold_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the driver has against it: the rest of its group is settled, and it returns with its lease."""
    monkeypatch.setattr("nimbusq.worker.pace.FIRST", 0.001)

    class Quick(Job):
        n: int

        async def handle(self) -> None: ...

    receipts = await dispatch_many([Quick(n=n) for n in range(10)])
    bad = receipts[3].id

    async def refuse(settlements: Sequence[Settlement]) -> None:
        if any(settlement.claim.id == bad for settlement in settlements):
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    bench.adapter.before["settle"] = refuse
    async with bench.working(concurrency=10):
        await until(lambda: f"job {bad} cannot be settled" in caplog.text)
    assert [(await bench.view(receipt.id)).state for receipt in receipts] == [
        "leased" if receipt.id == bad else "done" for receipt in receipts
    ]


async def test_a_driver_that_settles_nothing_ends_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B08: raise once, and the worker goes on; raise for ever, and it ends with the error."""
    monkeypatch.setattr("nimbusq.worker.pace.FIRST", 0.001)
    monkeypatch.setattr("nimbusq.worker.pace.CAP", 0.001)
    failures = 1

    class Quick(Job):
        async def handle(self) -> None: ...

    async def fail(_: object) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise RuntimeError("a bug in the driver")

    bench.adapter.before["settle"] = fail
    receipt = await dispatch(Quick()).send()
    async with bench.working():
        assert await receipt.result(timeout=5) is None
    failures = 10**6
    await dispatch_many([Quick() for _ in range(5)])
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="a bug in the driver"):
            await bench.worker(grace=0.0).run()


async def test_the_duration_is_the_runs_own(bench: Bench) -> None:
    """Not the time that its settlement had to wait."""
    durations: list[float] = []

    class Watch(Observer):
        def processed(self, claim: Claim, duration: float, error: str | None) -> None:
            durations.append(duration)

    class Quick(Job):
        async def handle(self) -> None: ...

    async def dawdle(_: object) -> None:
        await asyncio.sleep(0.2)

    bench.manager.observers.add(Watch())
    bench.adapter.before["settle"] = dawdle
    await dispatch(Quick()).send()
    await bench.worker().run_once()
    assert durations[0] < 0.1


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 100_000, "\N{ZERO WIDTH JOINER}"])
async def test_error_texts_are_stored_as_a_database_takes_them(bench: Bench, text: str) -> None:
    class Bad(Job, retries=0):
        async def handle(self) -> None:
            raise ValueError(text)

    receipt = await dispatch(Bad()).send()
    async with bench.working():
        await until(lambda: any(bench.adapter.settlements))
    record = await bench.manager.require("failed", "failed jobs").get(receipt.id)
    for stored in (record.error, record.traceback):
        assert "\0" not in stored
        stored.encode()
        assert len(stored) < 20_000


async def test_an_error_without_a_readable_text_is_an_error_all_the_same(bench: Bench) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Bad(Job, retries=0):
        async def handle(self) -> None:
            raise Mute

    receipt = await dispatch(Bad()).send()
    async with bench.working():
        await until(lambda: any(bench.adapter.settlements))
    view = await bench.view(receipt.id)
    assert view.state == "failed"
    assert view.error.startswith("Mute: ")


async def test_the_group_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nimbusq.worker.settler.GROUP", 4)
    go_on = asyncio.Event()

    class Quick(Job):
        async def handle(self) -> None: ...

    async def hold(settlements: Sequence[Settlement]) -> None:
        assert all(isinstance(settlement.outcome, Done) for settlement in settlements)
        await go_on.wait()

    bench.adapter.before["settle"] = hold
    await dispatch_many([Quick() for _ in range(10)])
    async with bench.working(concurrency=10) as worker:
        await until(lambda: len(bench.adapter.settlements) == 1 and not worker.running)
        go_on.set()
    assert [len(group) for group in bench.adapter.settlements] == [4, 4, 2]
