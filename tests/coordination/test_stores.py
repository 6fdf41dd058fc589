"""What a manager coordinates with: every store on every driver that coordinates, or a refusal with its remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import fields
from typing import Any

import pytest

from nimbusq import Batch, Chain, Job, Manager, Scheduler, UnsupportedByDriver, dispatch
from nimbusq.batch import find_batch
from nimbusq.control import explain
from nimbusq.driver import Adapter, Claimed, Lane, Stores, Want
from nimbusq.failed import retry
from nimbusq.ids import new_token
from nimbusq.overlap import WithoutOverlapping
from nimbusq.receipt import cancel
from nimbusq.unique import acquire_unique_lock, dispatch_unique, is_unique_locked
from tests.coordination.place import Place
from tests.coordination.programs import shop


class Reindex(Job):
    async def handle(self) -> None: ...


def missing(manager: Manager) -> list[str]:
    return [spec.name for spec in fields(Stores) if getattr(manager.stores, spec.name) is None]


async def test_a_driver_that_coordinates_has_every_store(here: Place) -> None:
    async with here.manager() as manager:
        assert missing(manager) == []


async def test_a_carrier_has_those_of_the_store_beside_it(beside: Place) -> None:
    async with beside.manager() as manager:
        assert missing(manager) == []


VERBS: dict[str, Callable[[Manager], Awaitable[Any]]] = {
    "unique": lambda _: dispatch(Reindex()).unique("k").send(),
    "unique_for": lambda _: dispatch(Reindex()).unique_for(60, key="k").send(),
    "dispatch_unique": lambda _: dispatch_unique(Reindex()),
    "is_unique_locked": lambda _: is_unique_locked(Reindex()),
    "acquire_unique_lock": lambda _: acquire_unique_lock(Reindex()),
    "without_overlapping": lambda _: dispatch(Reindex()).without_overlapping("k").send(),
    "a wrapper by hand": lambda _: WithoutOverlapping(Reindex(), "k").handle(),
    "rate_limit": lambda _: dispatch(Reindex()).rate_limit("k", 1).send(),
    "Batch": lambda _: Batch([Reindex()]).send(),
    "find_batch": lambda _: find_batch("b"),
    "Chain": lambda _: Chain(Reindex(), Reindex()).send(),
    "Scheduler": lambda manager: Scheduler(manager).list(),
    "retry": lambda _: retry(["id"]),
    "explain": lambda _: explain("id"),
    "cancel": lambda manager: cancel(manager, "id"),
}


@pytest.mark.parametrize("url", ["sqs://us-east-1", "kafka://localhost:9092"])
@pytest.mark.parametrize("verb", VERBS)
async def test_without_a_store_each_verb_is_refused_and_nothing_becomes_per_process(
    url: str, verb: str
) -> None:
    """CF13: the seed coordinates within the process there, and says nothing."""
    manager = Manager(url)
    manager.make_current()
    with pytest.raises(UnsupportedByDriver, match="QUEUE_STORE_URL") as refused:
        await VERBS[verb](manager)
    assert refused.value.driver == url.partition(":")[0]


# --- recovery needs no lock (B50) ----------------------------------------------------------------------------------


async def test_of_many_that_take_a_lost_job_back_at_once_one_gets_it(here: Place) -> None:
    async with here.time_machine() as (manager, advance), AsyncExitStack() as stack:
        receipt = await dispatch(shop.step, "x").send()
        assert [one.id for one in (await claim(manager.adapter)).claims] == [receipt.id]
        await advance(11)
        others = [manager.adapter.clone() for _ in range(4)]
        for other in others:
            await other.open()
            stack.push_async_callback(other.aclose)
        answers = await asyncio.gather(*(claim(other) for other in others for _ in range(5)))
        taken = [(one.id, one.attempt, one.reclaimed) for answer in answers for one in answer.claims]
        lost = [(one.id, one.attempt) for answer in answers for one in answer.lost]
    assert taken == [(receipt.id, 2, True)]
    assert lost == [(receipt.id, 1)]


async def claim(adapter: Adapter) -> Claimed:
    lanes = (Lane(queue="default", limit=1),)
    return await adapter.claim(Want(token=new_token(), limit=1, lease=10, lanes=lanes))
