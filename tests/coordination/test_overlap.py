"""At most n running jobs per key, in all processes, whatever dies."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

from nimbusq import Batch, Job, JobFailed, Worker, dispatch
from nimbusq.errors import InvalidJob, InvalidOption
from nimbusq.ids import derived_id
from nimbusq.overlap import WithoutOverlapping
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop


class Keyed(Job):
    name_: str
    seconds: float = 0.0

    async def handle(self) -> None:
        shop.note("start", self.name_)
        await asyncio.sleep(self.seconds)
        shop.note("end", self.name_)

    def overlap_key(self) -> str:
        return "account-7"


def most_at_once(place: Place) -> int:
    """The greatest number of runs at any moment, from the ledger."""
    changes = [(float(line[0]), 1) for line in place.notes("start")] + [
        (float(line[0]), -1) for line in place.notes("end")
    ]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


async def test_two_processes_run_one_at_a_time_though_one_job_outlasts_its_lease(shared: Place) -> None:
    async with shared.manager() as manager:
        for name, seconds in (("long", 3.0), ("a", 0.1), ("b", 0.1), ("c", 0.1)):
            await dispatch(shop.step, name, seconds).without_overlapping("k", release_after=0.3).send()
        for _ in range(2):
            shared.start("worker", LEASE=1, CONCURRENCY=2)
        await shared.until_empty(manager)
        assert most_at_once(shared) == 1
        assert shared.counts("end") == {"long": 1, "a": 1, "b": 1, "c": 1}
        assert {line[3] for line in shared.notes("start")} == {"1"}, "a blocked claim counted as an attempt"


async def test_a_limit_of_two_lets_two_run(here: Place) -> None:
    async with here.manager() as manager:
        for name in "abcdef":
            await dispatch(shop.step, name, 0.2).without_overlapping("k", limit=2, release_after=0.1).send()
        async with workers(Worker(manager, lease=2), Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert most_at_once(here) == 2
        assert len(here.counts("end")) == 6


async def test_a_killed_holder_blocks_for_its_lease_at_most(shared: Place) -> None:
    async with shared.manager() as manager:
        await dispatch(shop.step, "held", 60).retries(0).without_overlapping("k", release_after=0.5).send()
        victim = shared.start("worker", LEASE=1)
        await shared.until(lambda: bool(shared.counts("start")["held"]), "the first start")
        shared.start("worker", LEASE=1)
        async with asyncio.timeout(20):
            while len(await manager.require("workers", "").list()) < 2:
                await asyncio.sleep(0.02)
        await dispatch(shop.step, "next").without_overlapping("k", release_after=0.5).send()
        victim.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        await shared.until(lambda: bool(shared.counts("start")["next"]), "the next start")
        (started,) = [float(line[0]) for line in shared.notes("start") if line[2] == "next"]
        assert started - killed < 1.0 + 1.0
        await shared.until_empty(manager)


async def test_three_ways_to_ask_share_one_key_space(here: Place) -> None:
    async with here.manager() as manager:
        await dispatch(Keyed(name_="hook", seconds=0.2)).send()
        await (
            dispatch(Keyed(name_="builder", seconds=0.2))
            .without_overlapping("account-7", release_after=0.1)
            .send()
        )
        wrapped = WithoutOverlapping(Keyed(name_="wrapper", seconds=0.2), "account-7", release_after=0.1)
        await dispatch(wrapped).send()
        async with workers(Worker(manager, lease=2, concurrency=5)):
            await here.until_empty(manager)
        assert most_at_once(here) == 1
        assert here.counts("end") == {"hook": 1, "builder": 1, "wrapper": 1}


async def test_a_blocked_job_keeps_its_slot_and_its_batch_waits_for_it(here: Place) -> None:
    key = "é" * 128  # as long as a key may be
    async with here.manager() as manager, workers(Worker(manager, lease=2, concurrency=5)):
        await dispatch(shop.held, "holder").without_overlapping(key).send()
        await here.until(lambda: bool(here.counts("start")), "the holder's start")
        slot = (
            await dispatch(shop.held, "slot").unique("k").without_overlapping(key, release_after=0.1).send()
        )
        batch = await Batch(
            [dispatch(shop.held, "member").without_overlapping(key, release_after=0.1)]
        ).send()
        for job_id in (slot.id, derived_id(batch.id, 0)):
            async with asyncio.timeout(10):
                while (await manager.require("jobs", "").get(job_id)).releases < 2:
                    await asyncio.sleep(0.02)
        other = await dispatch(shop.held, "slot").unique("k", on_duplicate="return").send()
        assert (other.status, other.id) == ("duplicate", slot.id)
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed) == (1, 1, 0)
        for name in ("holder", "slot", "member"):
            shop.let_go(name)
        await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.pending, state.failed, state.finished) == (0, 0, True)
    assert {line[2]: line[3] for line in here.notes("start")} == {"holder": "1", "slot": "1", "member": "1"}


async def test_max_releases_ends_a_job_whose_key_stays_busy(here: Place) -> None:
    async with here.manager() as manager:
        await dispatch(shop.held, "holder").without_overlapping("k").send()
        async with workers(Worker(manager, lease=2, concurrency=5)):
            await here.until(lambda: bool(here.counts("start")), "the holder's start")
            blocked = dispatch(shop.held, "blocked").without_overlapping(
                "k", release_after=0.05, max_releases=3
            )
            receipt = await blocked.send()
            with pytest.raises(JobFailed, match="stayed busy"):
                await receipt.result(timeout=10)
            shop.let_go("holder")
            await here.until_empty(manager)
        record = await manager.require("failed", "").get(receipt.id)
        assert (record.kind, record.attempts) == ("OverlapBlocked", 0)
        assert here.counts("start") == {"holder": 1}


async def test_an_expiry_below_the_lease_is_refused(here: Place) -> None:
    async with here.manager(lease=30) as manager:
        with pytest.raises(InvalidOption, match="below the lease"):
            await dispatch(shop.step, "x").without_overlapping("k", expire_after=29).send()
        assert (await manager.depth()).pending == 0


async def test_defaults_are_the_seeds(here: Place) -> None:
    async with here.manager() as manager:
        receipt = await dispatch(shop.step, "x").without_overlapping("k").send()
        view = await manager.require("jobs", "").get(receipt.id)
        overlap = view.envelope.overlap
        assert (overlap.limit, overlap.release_after, overlap.expire_after, overlap.max_releases) == (
            1,
            3.0,
            600.0,
            None,
        )


async def test_the_wrapper_called_by_hand_waits_for_the_key(here: Place) -> None:
    async with here.manager():
        wrapper = WithoutOverlapping(Keyed(name_="direct", seconds=0.1), "k")
        assert wrapper.inner == Keyed(name_="direct", seconds=0.1)
        await asyncio.gather(*(wrapper.handle() for _ in range(3)))
        assert most_at_once(here) == 1
        assert here.counts("end") == {"direct": 3}


async def test_twenty_blocks_cost_no_attempt(here: Place) -> None:
    async with here.manager() as manager:
        await dispatch(shop.held, "holder").without_overlapping("k").send()
        async with workers(Worker(manager, lease=2, concurrency=2)):
            await here.until(lambda: bool(here.counts("start")), "the holder's start")
            blocked = await dispatch(shop.held, "blocked").without_overlapping("k", release_after=0.01).send()
            async with asyncio.timeout(20):
                while (await manager.require("jobs", "").get(blocked.id)).releases < 20:
                    await asyncio.sleep(0.02)
            shop.let_go("holder")
            shop.let_go("blocked")
            await here.until_empty(manager)
        view = await blocked.refresh()
        assert view is not None
        assert (view.state, view.attempt) == ("done", 1)
        assert [line[3] for line in here.notes("start") if line[2] == "blocked"] == ["1"]


async def test_a_live_holder_keeps_its_key_for_longer_than_expire_after(here: Place) -> None:
    """The seed's lock is not renewed: there, others run beside a job that takes longer than ten minutes."""
    async with here.manager(lease=1.2) as manager:
        for name, seconds in (("long", 2.0), ("next", 0.0)):
            overlap = {"release_after": 0.1, "expire_after": 1.2}
            await (
                dispatch(shop.step, name, seconds)
                .priority(1 + (name == "next"))
                .without_overlapping("k", **overlap)
                .send()
            )
        async with workers(Worker(manager), Worker(manager)):
            await here.until_empty(manager)
        assert most_at_once(here) == 1
        assert here.counts("end") == {"long": 1, "next": 1}


async def test_a_retry_frees_the_key_while_it_waits(here: Place) -> None:
    async with here.manager() as manager:
        await dispatch(shop.flaky, "flaky", 1).priority(1).without_overlapping("k").send()
        await dispatch(shop.flaky, "other", 0).without_overlapping("k", release_after=0.05).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert here.counts("end") == {"flaky": 1, "other": 1}


@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"limit": True}, {"release_after": 0}, {"expire_after": -1}, {"max_releases": -1}],
)
def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidOption):
        dispatch(shop.step, "x").without_overlapping("k", **options)


async def test_a_wrapper_says_what_the_builder_says(here: Place) -> None:
    """Nothing of the wrapper travels but the key and its rules."""
    options: dict[str, Any] = {"limit": 2, "release_after": 9, "expire_after": 900, "max_releases": 5}
    inner = Keyed(name_="x")
    async with here.manager() as manager:
        wrapped = await dispatch(WithoutOverlapping(inner, "k", **options)).send()
        built = await dispatch(inner).without_overlapping("k", **options).send()
        views = [await manager.require("jobs", "").get(receipt.id) for receipt in (wrapped, built)]
        assert views[0].envelope.overlap == views[1].envelope.overlap
        overlap = views[0].envelope.overlap
        assert (overlap.key, overlap.limit, overlap.max_releases) == ("k", 2, 5)
        assert (overlap.release_after, overlap.expire_after) == (9.0, 900.0)
        assert views[0].envelope.name == "Keyed"
        with pytest.raises(InvalidJob, match="does not define handle"):
            await dispatch(WithoutOverlapping(Job(), "k")).send()


def test_the_wrapper_has_the_jobs_own_defaults() -> None:
    class Slow(Job, release_after=9, expire_after=900, max_releases=5):
        async def handle(self) -> None: ...

    wrapper = WithoutOverlapping(Slow(), "k")
    assert (wrapper.limit, wrapper.release_after, wrapper.expire_after) == (1, 9.0, 900.0)
    assert wrapper.overlap_key() == "k"
