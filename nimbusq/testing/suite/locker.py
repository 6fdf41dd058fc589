"""Locks by name: one holder, for a time, freed by its token."""

from __future__ import annotations

import asyncio

from nimbusq.driver import Locker
from nimbusq.testing.suite.hands import Hands
from nimbusq.testing.suite.needs import needs


def store_of(hands: Hands) -> Locker:
    locker = hands.adapter.stores.locker
    assert locker is not None
    return locker


class LockerSuite:
    @needs("locker")
    async def test_a_lock_has_one_holder(self, hands: Hands) -> None:
        locker, other = store_of(hands), store_of(await hands.other())
        token = await locker.acquire("k", 3 * hands.tick)
        assert token
        assert await locker.acquire("k", hands.tick) is None
        assert await other.acquire("k", hands.tick) is None
        assert await other.holder("k") == token
        assert await other.acquire("other", hands.tick) not in {None, token}

    @needs("locker")
    async def test_a_free_lock_has_no_holder(self, hands: Hands) -> None:
        assert await store_of(hands).holder("k") is None
        assert await store_of(hands).force_release("k") is False

    @needs("locker")
    async def test_only_its_token_releases_it(self, hands: Hands) -> None:
        locker = store_of(hands)
        token = await locker.acquire("k", 3 * hands.tick)
        assert token
        assert await locker.release("k", "wrong") is False
        assert await locker.release("k", "") is False
        assert await locker.holder("k") == token
        assert await locker.release("k", token) is True
        assert await locker.release("k", token) is False
        assert await locker.acquire("k", hands.tick) is not None

    @needs("locker")
    async def test_a_lock_ends_with_its_time(self, hands: Hands) -> None:
        locker = store_of(hands)
        token = await locker.acquire("k", 2 * hands.tick)
        assert token
        await hands.pass_ticks(1)
        assert await locker.acquire("k", hands.tick) is None
        await hands.pass_ticks(1.1)
        assert await locker.holder("k") is None
        assert await locker.extend("k", token, hands.tick) is False
        assert await locker.release("k", token) is False
        assert await locker.acquire("k", hands.tick) not in {None, token}

    @needs("locker")
    async def test_a_holder_extends_its_lock(self, hands: Hands) -> None:
        locker = store_of(hands)
        token = await locker.acquire("k", 2 * hands.tick)
        assert token
        await hands.pass_ticks(1)
        assert await locker.extend("k", token, 2 * hands.tick) is True
        assert await locker.extend("k", "wrong", 9 * hands.tick) is False
        await hands.pass_ticks(1.5)
        assert await locker.holder("k") == token
        await hands.pass_ticks(1)
        assert await locker.holder("k") is None

    @needs("locker")
    async def test_force_drops_it_whoever_holds_it(self, hands: Hands) -> None:
        locker = store_of(hands)
        token = await locker.acquire("k", 3 * hands.tick)
        assert token
        assert await locker.force_release("k") is True
        assert await locker.holder("k") is None
        assert await locker.release("k", token) is False

    @needs("locker")
    async def test_a_late_release_does_not_free_the_next_holder(self, hands: Hands) -> None:
        locker = store_of(hands)
        late = await locker.acquire("k", hands.tick)
        assert late
        await hands.pass_ticks(1.1)
        token = await locker.acquire("k", 3 * hands.tick)
        assert await locker.release("k", late) is False
        assert await locker.holder("k") == token

    @needs("locker")
    async def test_of_many_contenders_one_wins(self, hands: Hands) -> None:
        sides = [store_of(hands), store_of(await hands.other())]
        answers = await asyncio.gather(*(sides[n % 2].acquire("k", hands.tick) for n in range(30)))
        assert len([answer for answer in answers if answer]) == 1

    @needs("locker")
    async def test_long_and_strange_keys(self, hands: Hands) -> None:
        locker = store_of(hands)
        for key in ("x" * 1000, "x" * 999, "é {a}:*\n'\"", "unique"):
            token = await locker.acquire(key, hands.tick)
            assert token
            assert await locker.holder(key) == token
