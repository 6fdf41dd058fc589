"""Pushes that come at once share calls, and nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from nimbusq.driver import DriverSettings, Pushed, PushGroups
from nimbusq.envelope import Envelope, Unique
from nimbusq.errors import StoreError, StoreUnavailable
from nimbusq_database import DatabaseAdapter


def envelope(name: str, unique: Unique | None = None) -> Envelope:
    return Envelope(id=name, name="Send", queue="mail", unique=unique)


class Store:
    """Answers when it is let; refuses the job "bad"."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open = asyncio.Event()
        self.error: Exception | None = None

    async def send(self, envelopes: Sequence[Envelope]) -> list[Pushed]:
        names = [one.id for one in envelopes]
        self.calls.append(names)
        await self.open.wait()
        if self.error:
            raise self.error
        if "bad" in names:
            raise StoreError("no")
        return [Pushed(name) for name in names]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def groups(store: Store) -> PushGroups:
    return PushGroups(store.send, patience=0.05)


def pushed(groups: PushGroups, *names: str) -> asyncio.Future[Sequence[Pushed]]:
    return asyncio.ensure_future(groups.push([envelope(name) for name in names]))


async def settle_down() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_waits_goes_together_and_each_gets_its_own_answers(
    store: Store, groups: PushGroups
) -> None:
    pushes = [pushed(groups, str(n), f"{n}b") for n in range(10)]
    await settle_down()
    assert store.calls == [["0", "0b"]]
    store.open.set()
    answers = await asyncio.gather(*pushes)
    assert answers == [[Pushed(str(n)), Pushed(f"{n}b")] for n in range(10)]
    assert store.calls[1:] == [[name for n in range(1, 10) for name in (str(n), f"{n}b")]]


async def test_a_large_push_waits_for_nobody(store: Store, groups: PushGroups) -> None:
    small, large = pushed(groups, "a"), pushed(groups, *map(str, range(100)))
    await settle_down()
    assert [len(call) for call in store.calls] == [1, 100]
    store.open.set()
    assert len(await large) == 100
    await small


async def test_a_store_that_is_away_is_away_for_each(store: Store, groups: PushGroups) -> None:
    store.error = StoreUnavailable("gone")
    pushes = [pushed(groups, str(n)) for n in range(6)]
    await settle_down()
    store.open.set()
    results = await asyncio.gather(*pushes, return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 6
    assert len(store.calls) == 2
    store.error = None
    assert await groups.push([envelope("after")]) == [Pushed("after")]


async def test_what_one_push_did_wrong_hurts_no_other(store: Store, groups: PushGroups) -> None:
    pushes = [pushed(groups, name) for name in ("first", "a", "bad", "b")]
    await settle_down()
    store.open.set()
    results = await asyncio.gather(*pushes, return_exceptions=True)
    assert results[0::3] == [[Pushed("first")], [Pushed("b")]]
    assert results[1] == [Pushed("a")]
    assert type(results[2]) is StoreError


async def test_a_push_that_is_cancelled_while_it_waits_is_not_sent(store: Store, groups: PushGroups) -> None:
    pushes = [pushed(groups, str(n)) for n in range(4)]
    await settle_down()
    pushes[2].cancel()
    store.open.set()
    results = await asyncio.gather(*pushes, return_exceptions=True)
    assert isinstance(results[2], asyncio.CancelledError)
    assert sorted(name for call in store.calls for name in call) == ["0", "1", "3"]


async def test_any_cancellation_leaves_the_others_their_answers(store: Store) -> None:
    store.open.set()
    chance = random.Random(7)
    for _ in range(300):
        groups = PushGroups(store.send, patience=0.05)
        pushes = [pushed(groups, str(n)) for n in range(8)]
        for _ in range(chance.randrange(14)):
            await asyncio.sleep(0)
        doomed = chance.sample(range(8), 3)
        for n in doomed:
            pushes[n].cancel()
        async with asyncio.timeout(2):
            results = await asyncio.gather(*pushes, return_exceptions=True)
        kept = [n for n in range(8) if n not in doomed]
        assert [results[n] for n in kept] == [[Pushed(str(n))] for n in kept]
        assert await groups.push([envelope("after")]) == [Pushed("after")]
        assert not groups._busy


async def test_in_a_database_each_push_hears_who_holds_its_key(tmp_path: Path) -> None:
    adapter = DatabaseAdapter.from_url(f"sqlite:///{tmp_path}/jobs.db", DriverSettings())
    await adapter.open()
    try:
        sent = [envelope(f"{n:03}", Unique(key=str(n % 50))) for n in range(100)]
        answers = await asyncio.gather(*(adapter.push([one]) for one in sent))
        (depth,) = await adapter.depth(["mail"])
    finally:
        await adapter.aclose()
    assert [answer[0].id for answer in answers] == [one.id for one in sent]
    holders = [answer[0].holder for answer in answers]
    pairs = zip(holders[:50], holders[50:], strict=True)
    for n, pair in enumerate(pairs):  # what the thread does may be done later
        assert pair in ((None, f"{n:03}"), (f"{n + 50:03}", None))
    assert depth.pending == 50


# --- a store that does not answer ------------------------------------------------------------------------------


async def test_nobody_waits_for_more_than_two_calls_of_a_frozen_store() -> None:
    """Whoever has waited for as long as a call may take is told that it was not sent."""
    calls: list[int] = []

    async def frozen(envelopes: Sequence[Envelope]) -> Sequence[Pushed]:
        calls.append(len(envelopes))
        await asyncio.sleep(0.5)
        raise StoreUnavailable("no answer")

    groups = PushGroups(frozen, patience=0.05)
    pushes = [pushed(groups, str(n)) for n in range(2_000)]
    results = await asyncio.gather(*pushes, return_exceptions=True)
    assert calls == [1]
    assert {type(result) for result in results} == {StoreUnavailable}
    assert str(results[0]) == "no answer"
    assert "not sent" in str(results[1])
    assert len({id(result) for result in results}) == 2_000, "each raises an error of its own"


async def test_one_lost_call_is_not_the_fault_of_those_that_came_later() -> None:
    answers = iter([False, True])

    async def cut_once(envelopes: Sequence[Envelope]) -> Sequence[Pushed]:
        await asyncio.sleep(0)
        if not next(answers):
            raise StoreUnavailable("cut")
        return [Pushed(one.id) for one in envelopes]

    groups = PushGroups(cut_once, patience=5.0)
    results = await asyncio.gather(*(pushed(groups, str(n)) for n in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable, list, list]


async def test_what_is_too_much_together_goes_apart(store: Store, groups: PushGroups) -> None:
    body = b"x" * 400_000
    great = [Envelope(id=str(n), name="Send", queue="mail", body=body) for n in range(6)]
    pushes = [asyncio.ensure_future(groups.push([one])) for one in great]
    await settle_down()
    store.open.set()
    await asyncio.gather(*pushes)
    assert store.calls == [["0"], ["1", "2"], ["3", "4"], ["5"]]
