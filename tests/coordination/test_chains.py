"""Chains: each link queued once, whatever is killed or repeated."""

from __future__ import annotations

import asyncio

import pytest

from nimbusq import Batch, Chain, DispatchError, Fail, Manager, Release, Worker, dispatch, job
from nimbusq.chain import register_chain
from nimbusq.errors import InvalidOption
from nimbusq.failed import retry
from nimbusq.receipt import cancel
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop


async def test_links_run_in_order_on_two_workers(here: Place) -> None:
    async with here.manager() as manager:
        chain = await Chain(*(dispatch(shop.step, f"l{n}", 0.02) for n in range(5))).named("etl").send()
        assert (chain.length, chain.name) == (5, "etl")
        async with workers(Worker(manager, lease=2), Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert [line[2] for line in here.notes("start")] == ["l0", "l1", "l2", "l3", "l4"]
        for index in range(5):
            view = await manager.require("jobs", "").get(chain.link_id(index))
            assert view.state == "done"


def assert_queued_once(place: Place, links: int) -> None:
    """The links ran in their order, each as one job: its attempts rise, and a second job would begin with 1 again.

    Each ran twice, since a worker died with its first run; a worker that died after one link may have claimed the
    next, which then has one attempt more.
    """
    runs: dict[str, list[int]] = {f"l{n}": [] for n in range(links)}
    for _, _, name, attempt, *_ in place.notes("start"):
        runs[name].append(int(attempt))
        assert list(runs)[-1] == name or not runs[f"l{int(name[1:]) + 1}"], (
            "a link ran after the next had begun"
        )
    for name, attempts in runs.items():
        assert attempts == sorted(set(attempts)), f"{name} was queued twice: attempts {attempts}"
        assert 2 <= len(attempts) <= attempts[-1] <= 4, f"{name}: attempts {attempts}"


async def test_kills_at_every_window_queue_each_link_once(shared: Place) -> None:
    """One worker dies after each body, before its settlement reached the store: the link runs again. The next dies
    when the link is done and the next one is pushed (one step), and the reply is lost with it."""
    async with shared.manager() as manager:
        await Chain(*(dispatch(shop.step, f"l{n}") for n in range(5))).on_failure(shop.on_failure).send()
        shared.start("nursery", 1, LEASE=0.8, DIE="before:1,after:1," * 5, CONCURRENCY=1)
        await shared.until_empty(manager)
        assert_queued_once(shared, 5)
        assert shared.notes("on_failure") == []


async def test_a_failed_link_ends_the_chain_and_its_retry_continues_it(here: Place) -> None:
    async with here.manager() as manager:
        links = [
            dispatch(shop.step, "l0"),
            dispatch(shop.flaky, "l1", 1).retries(0),
            dispatch(shop.step, "l2"),
        ]
        chain = await Chain(*links).on_failure(shop.on_failure).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
            assert here.counts("end") == {"l0": 1}
            assert here.counts("on_failure") == {chain.link_id(1): 1}
            record = await manager.require("failed", "").get(chain.link_id(1))
            assert record.attempts == 1
            await manager.require("failed", "").retry(chain.link_id(1))
            await here.until(lambda: len(here.counts("start")) >= 2, "the retry")
            await here.until_empty(manager)
        assert here.counts("start")["l1"] == 2
        assert "l2" not in here.counts("start"), "the flaky link failed again: attempts start anew"


async def test_retrying_a_link_that_then_succeeds_runs_the_rest(here: Place) -> None:
    switch = {"broken": True}

    @job(retries=0)
    async def sometimes() -> None:
        if switch["broken"]:
            raise ValueError("not yet")

    async with here.manager() as manager:
        chain = await Chain(dispatch(sometimes), dispatch(shop.step, "after")).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
            switch["broken"] = False
            assert (await retry([chain.first])).retried == 1
            assert (await retry([chain.first])).missing == (chain.first,), "a double click retries once"
            await here.until(lambda: bool(here.counts("end")), "the second link")
            await here.until_empty(manager)
        assert here.counts("end") == {"after": 1}


async def test_failures_before_the_retries_are_used_up_skip_nothing(here: Place) -> None:
    async with here.manager() as manager:
        await (
            Chain(dispatch(shop.flaky, "l0", 2), dispatch(shop.step, "l1")).on_failure(shop.on_failure).send()
        )
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert here.counts("end") == {"l0": 1, "l1": 1}
        assert here.notes("on_failure") == []


async def test_queues_of_links(here: Place) -> None:
    async with here.manager() as manager:
        links = [dispatch(shop.step, "l0"), dispatch(shop.step, "l1").on_queue("own")]
        await Chain(*links).on_queue("chain").send()
        assert (await manager.depth("chain")).pending == 1
        async with workers(Worker(manager, ["chain", "own"], lease=2)):
            await here.until_empty(manager, "chain", "own")
        assert here.counts("end") == {"l0": 1, "l1": 1}


async def test_the_failure_callback_by_name(here: Place) -> None:
    async with here.manager() as manager, workers(Worker(manager, lease=2)):
        register_chain("named-chain", shop.on_failure)
        named = await Chain(dispatch(shop.broken, "x")).named("named-chain").send()
        await here.until_empty(manager)
        assert here.counts("on_failure") == {named.first: 1}
        register_chain("named-chain", None)
        await Chain(dispatch(shop.broken, "y")).named("named-chain").send()
        await here.until_empty(manager)
        assert here.counts("on_failure") == {named.first: 1}, "it was removed"


async def test_a_broken_chain_in_a_batch_counts_once(here: Place) -> None:
    async with here.manager() as manager:
        chain = Chain(dispatch(shop.step, "l0"), dispatch(shop.broken, "l1"), dispatch(shop.step, "l2"))
        batch = await Batch([chain, dispatch(shop.step, "m")]).finally_(shop.on_finally).send()
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed) == (2, 0, 1)
        assert [line[3:] for line in here.notes("finally")] == [["2", "0", "1"]]


async def test_an_empty_chain_stores_nothing(here: Place) -> None:
    async with here.manager() as manager:
        assert (await Chain().send()).length == 0
        assert (await manager.depth()).pending == 0


async def test_a_cancelled_link_ends_the_chain(here: Place) -> None:
    async with here.manager() as manager:
        links = [dispatch(shop.step, "l0").delay(3600), dispatch(shop.step, "l1")]
        chain = await Chain(*links).on_failure(shop.on_failure).send()
        assert await cancel(manager, chain.first)
        async with workers(Worker(manager, lease=2)):
            await here.until_empty(manager)
        assert here.notes("start") == []
        assert here.notes("on_failure") == [], "it was no failure"


async def test_a_link_keeps_its_own_options(here: Place) -> None:
    async with here.manager() as manager:
        link = dispatch(shop.step, "l1").delay(0.3).priority(2).retries(7).tags("t").timeout(5)
        chain = await Chain(dispatch(shop.step, "l0"), link.without_overlapping("k")).send()
        async with workers(Worker(manager, lease=2)):
            await here.until(lambda: bool(here.counts("end")["l0"]), "the first link's end")
            async with asyncio.timeout(5):
                while (view := await manager.require("jobs", "").get(chain.link_id(1))) is None:
                    await asyncio.sleep(0.01)
            await here.until_empty(manager)
        envelope = view.envelope
        assert (envelope.priority, envelope.max_attempts, envelope.tags, envelope.timeout) == (
            2,
            8,
            ("t",),
            5.0,
        )
        assert envelope.overlap.key == "k"
        (ended,) = [float(line[0]) for line in here.notes("end") if line[2] == "l0"]
        (started,) = [float(line[0]) for line in here.notes("start") if line[2] == "l1"]
        assert started - ended >= 0.3, "its delay counts from the end of the link before"


async def test_what_cannot_be_a_link_is_refused(here: Place) -> None:
    async with here.manager() as manager:
        for links, text in [
            ((dispatch(shop.step, "x").unique("k"),), "cannot be unique"),
            ((dispatch(shop.step, "x").using(object()),), "transaction"),
            ((dispatch(shop.step, "x"), lambda: None), "must be a Job"),
        ]:
            with pytest.raises(DispatchError, match=text):
                await Chain(*links).send()
        with pytest.raises(InvalidOption, match="empty chain"):
            await Batch([Chain()]).send()
        assert (await manager.depth()).pending == 0


async def test_a_lost_link_ends_the_chain_with_its_callback(shared: Place) -> None:
    async with shared.manager() as manager:
        links = [dispatch(shop.suicidal, "l0").retries(0), dispatch(shop.step, "l1")]
        chain = await Chain(*links).on_failure(shop.on_failure).send()
        shared.start("nursery", 1, LEASE=0.8)
        await shared.until(lambda: bool(shared.notes("on_failure")), "the callback", 10)
        await shared.until_empty(manager)
        (told,) = [line[2:] for line in shared.notes("on_failure")]
        assert told[:3] == [chain.first, "suicidal:", "WorkerLost:"]
        assert shared.counts("start") == {"l0": 1}


async def test_two_thousand_links_on_sync_do_not_recurse() -> None:
    ran: list[int] = []

    @job
    async def link(n: int) -> None:
        ran.append(n)

    async with Manager("sync"):
        await Chain(*(dispatch(link, n) for n in range(2000))).send()
    assert ran == list(range(2000))


async def test_sync_stops_at_the_failed_link_and_calls_back_once() -> None:
    ran: list[object] = []

    @job(retries=0)
    async def link(n: int) -> None:
        if n == 3:
            raise ValueError("three")
        ran.append(n)

    @job
    async def failed_chain(error: ValueError) -> None:
        ran.append(str(error).rpartition(": ")[2])

    async with Manager("sync"):
        with pytest.raises(ValueError, match="three"):
            await Chain(*(dispatch(link, n) for n in range(7))).on_failure(failed_chain).send()
    assert ran == [0, 1, 2, "three"]


async def test_run_in_process_stops_at_the_first_error() -> None:
    ran: list[object] = []

    @job
    async def link(n: int) -> None:
        if n == 1:
            raise ValueError("one")
        ran.append(n)

    with pytest.raises(ValueError, match="one"):
        await (
            Chain(*(dispatch(link, n) for n in range(3)))
            .on_failure(lambda error: ran.append(str(error)))
            .run()
        )
    assert ran[0] == 0
    assert "one" in str(ran[1])
    assert len(ran) == 2


async def test_run_in_process_takes_releases_and_fail() -> None:
    ran: list[object] = []

    @job
    async def waits() -> None:
        ran.append("waits")
        if len(ran) < 3:
            raise Release(0.01)

    @job
    async def gives_up() -> None:
        raise Fail(KeyError("the reason"))

    with pytest.raises(KeyError, match="the reason"):
        await Chain(waits.bind(), gives_up.bind(), waits.bind()).run()
    assert ran == ["waits"] * 3
