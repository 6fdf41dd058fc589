"""What observers are told, event by event: each of them, once, with its details."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nimbusq import Batch, BatchState, Fail, Job, Manager, Observer, Release, Worker, current_job, dispatch
from nimbusq.driver import Claim, Lost
from nimbusq.envelope import Envelope
from tests.unit.worker.bench import Bench, until


class Diary(Observer):
    """Writes down every event with what identifies it."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.durations: list[float] = []

    def dispatched(self, envelope: Envelope) -> None:
        self.heard.append(("dispatched", envelope.name))

    def started(self, claim: Claim) -> None:
        self.heard.append(("started", claim.attempt))

    async def processed(self, claim: Claim, duration: float, error: str | None) -> None:
        self.heard.append(("processed", claim.attempt, error))
        self.durations.append(duration)

    def retried(self, claim: Claim, delay: float, error: str) -> None:
        self.heard.append(("retried", claim.attempt, delay, error))

    def released(self, claim: Claim, delay: float) -> None:
        self.heard.append(("released", claim.attempt, delay))

    def cancelled(self, claim: Claim, reason: str) -> None:
        self.heard.append(("cancelled", claim.id, reason))

    async def reclaimed(self, lost: Sequence[Lost]) -> None:
        self.heard.append(("reclaimed", [(one.id, one.queue, one.attempt) for one in lost]))

    def batch_finished(self, batch: BatchState) -> None:
        self.heard.append(("batch_finished", batch.id, batch.total, batch.pending, batch.failed))

    def hook_failed(self, claim: Claim, hook: str, error: BaseException) -> None:
        self.heard.append(("hook_failed", claim.attempt, hook, repr(error)))


@pytest.fixture
def diary(bench: Bench) -> Diary:
    bench.manager.observers.add(diary := Diary())
    return diary


async def test_a_job_that_succeeds(bench: Bench, diary: Diary) -> None:
    class Fine(Job):
        async def handle(self) -> None: ...

    await dispatch(Fine()).send()
    await bench.worker().run_once()
    assert diary.heard == [("dispatched", "Fine"), ("started", 1), ("processed", 1, None)]
    assert 0 <= diary.durations[0] < 5


async def test_a_retry_is_told_with_its_delay_and_is_not_processed(bench: Bench, diary: Diary) -> None:
    class Broken(Job, retries=1, backoff=2.5):
        async def handle(self) -> None:
            raise ValueError("no")

    await dispatch(Broken()).send()
    await bench.worker().run_once()
    assert diary.heard[1:] == [("started", 1), ("retried", 1, 2.5, "ValueError: no")]
    await bench.advance(2.5)
    await bench.worker().run_once()
    assert diary.heard[3:] == [("started", 2), ("processed", 2, "ValueError: no")]


async def test_a_release_is_told_with_its_delay_and_costs_no_attempt(bench: Bench, diary: Diary) -> None:
    class ComesBack(Job):
        async def handle(self) -> None:
            if not current_job().releases:
                raise Release(7)

    await dispatch(ComesBack()).send()
    await bench.worker().run_once()
    await bench.advance(7)
    await bench.worker().run_once()
    assert diary.heard[1:] == [("started", 1), ("released", 1, 7), ("started", 1), ("processed", 1, None)]


async def test_a_cancelled_job_is_told_with_the_reason(bench: Bench, diary: Diary) -> None:
    class Waits(Job):
        async def handle(self) -> None: ...

    receipt = await dispatch(Waits()).delay(60).send()
    await receipt.cancel()
    expired = await dispatch(Waits()).expires(1).send()
    await bench.advance(1)
    await bench.worker().run_once()
    assert [event for event in diary.heard if event[0] != "dispatched"] == [
        ("cancelled", receipt.id, "cancelled by request"),
        ("cancelled", expired.id, "expired before it could start"),
    ]


async def test_a_lost_lease_is_told_by_whoever_takes_it_back(bench: Bench, diary: Diary) -> None:
    class Fine(Job):
        async def handle(self) -> None: ...

    receipt = await dispatch(Fine()).on_queue("mail").send()
    await bench.claim("mail", lease=10)
    await bench.advance(10)
    worker = bench.worker("mail")
    await worker.run_once()
    assert diary.heard[1:] == [
        ("reclaimed", [(receipt.id, "mail", 1)]),
        ("started", 2),
        ("processed", 2, None),
    ]
    assert worker.counters["mail"]["reclaimed"] == 1


async def test_the_end_of_a_batch_is_told_once_by_whoever_counts_its_last_member(
    bench: Bench, diary: Diary
) -> None:
    class Member(Job, retries=0):
        n: int

        async def handle(self) -> None:
            if self.n == 2:
                raise Fail("no")

    batch = await Batch([Member(n=n) for n in range(3)]).send()
    await bench.worker().run_once()
    ends = [event for event in diary.heard if event[0] == "batch_finished"]
    assert ends == [("batch_finished", batch.id, 3, 0, 1)]
    empty = await Batch().send()
    assert diary.heard[-1] == ("batch_finished", empty.id, 0, 0, 0)


async def test_a_failed_hook_that_raises_is_told(bench: Bench, diary: Diary) -> None:
    class Broken(Job, retries=0):
        async def handle(self) -> None:
            raise ValueError("the job")

        async def failed(self, error: Exception) -> None:
            raise RuntimeError("the hook")

    await dispatch(Broken()).send()
    await bench.worker().run_once()
    await until(lambda: diary.heard[-1][0] == "hook_failed")
    assert diary.heard[2:] == [
        ("processed", 1, "ValueError: the job"),
        ("hook_failed", 1, "failed", "RuntimeError('the hook')"),
    ]


async def test_one_more_observer_takes_nothing_from_those_before() -> None:
    """T19: in the seed a second one wipes the first, or hears of no retry."""
    first, second, third = Diary(), Diary(), Diary()

    class Broken(Job, retries=1, backoff=0):
        async def handle(self) -> None:
            raise ValueError("no")

    async with Manager("memory://", observers=[first]) as manager:
        manager.observers.add(second)
        manager.observers.add(third)
        await dispatch(Broken()).send()
        worker = Worker(manager)
        await worker.run_once()
        await worker.run_once()
    assert first.heard == second.heard == third.heard
    assert [event[0] for event in first.heard] == [
        "dispatched",
        "started",
        "retried",
        "started",
        "processed",
    ]
