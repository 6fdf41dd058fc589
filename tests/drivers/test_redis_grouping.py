"""Pushes that come at once share calls, and nothing else."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from nimbusq.envelope import Envelope, Unique
from nimbusq.errors import StoreFull
from nimbusq_redis.grouping import PushGroups
from tests.drivers.redis_env import redis_env


class Store:
    """Answers with the first part of each entry, when it is let."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open = asyncio.Event()
        self.error: Exception | None = None

    async def send(self, entries: Sequence[Any]) -> Sequence[Any]:
        self.calls.append(list(entries[::4]))
        await self.open.wait()
        if self.error:
            raise self.error
        return list(entries[::4])


def entry(name: str) -> list[str]:
    return [name, "queue", "", "wire"]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def groups(store: Store) -> PushGroups:
    return PushGroups(store.send)


async def settle_down() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_waits_goes_together_and_each_gets_its_own_answers(
    store: Store, groups: PushGroups
) -> None:
    async with asyncio.TaskGroup() as group:
        pushes = [group.create_task(groups.push(entry(str(n)) + entry(f"{n}b"))) for n in range(10)]
        await settle_down()
        assert store.calls == [["0", "0b"]]
        store.open.set()
    assert [push.result() for push in pushes] == [[str(n), f"{n}b"] for n in range(10)]
    assert store.calls[1:] == [[part for n in range(1, 10) for part in (str(n), f"{n}b")]]


async def test_a_failure_is_that_of_each(store: Store, groups: PushGroups) -> None:
    store.error = StoreFull("full")
    pushes = [asyncio.ensure_future(groups.push(entry(str(n)))) for n in range(6)]
    await settle_down()
    store.open.set()
    results = await asyncio.gather(*pushes, return_exceptions=True)
    assert [type(result) for result in results] == [StoreFull] * 6
    store.error = None
    assert await groups.push(entry("after")) == ["after"]


async def test_a_push_that_is_cancelled_while_it_waits_is_not_sent(store: Store, groups: PushGroups) -> None:
    pushes = [asyncio.ensure_future(groups.push(entry(str(n)))) for n in range(4)]
    await settle_down()
    pushes[2].cancel()
    store.open.set()
    results = await asyncio.gather(*pushes, return_exceptions=True)
    assert isinstance(results[2], asyncio.CancelledError)
    assert "2" not in [name for call in store.calls for name in call]


async def test_any_cancellation_leaves_the_others_their_answers(store: Store) -> None:
    store.open.set()
    chance = random.Random(7)
    for _ in range(300):
        groups = PushGroups(store.send)
        pushes = [asyncio.ensure_future(groups.push(entry(str(n)))) for n in range(8)]
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        doomed = chance.sample(range(8), 3)
        for n in doomed:
            pushes[n].cancel()
        async with asyncio.timeout(2):
            results = await asyncio.gather(*pushes, return_exceptions=True)
        assert [results[n] for n in range(8) if n not in doomed] == [
            [str(n)] for n in range(8) if n not in doomed
        ]
        assert await groups.push(entry("after")) == ["after"]
        assert not groups._busy


@pytest.mark.redis
async def test_on_a_real_server(redis_url: str) -> None:
    async with redis_env(redis_url, testing=False) as env:
        sent = [
            Envelope(id=str(uuid.uuid4()), name="Probe", queue="mail", unique=Unique(key=str(n % 50)))
            for n in range(100)
        ]
        answers = await asyncio.gather(*(env.adapter.push([envelope]) for envelope in sent))
        assert [answer[0].id for answer in answers] == [envelope.id for envelope in sent]
        assert [answer[0].holder for answer in answers] == [None] * 50 + [
            envelope.id for envelope in sent[:50]
        ]
