"""The Locker, as applications use it: ``manager.stores.locker``."""

from __future__ import annotations

import asyncio

from nimbusq import Manager
from nimbusq.driver import Locker
from tests.coordination.place import Place


def locker_of(manager: Manager) -> Locker:
    locker: Locker = manager.require("locker", "locks")
    return locker


async def test_of_a_hundred_contenders_one_wins(here: Place) -> None:
    async with here.manager() as manager:
        locker = locker_of(manager)
        answers = await asyncio.gather(*(locker.acquire("k", 60) for _ in range(100)))
        (token,) = [answer for answer in answers if answer is not None]
        assert await locker.holder("k") == token


async def test_only_its_token_releases_and_extends_it(here: Place) -> None:
    async with here.manager() as manager:
        locker = locker_of(manager)
        token = await locker.acquire("k", 60)
        assert token
        for wrong in ("", "wrong", token.upper() + "x"):
            assert not await locker.release("k", wrong)
            assert not await locker.extend("k", wrong, 60)
        assert await locker.holder("k") == token
        assert await locker.extend("k", token, 60)
        assert await locker.release("k", token)
        assert not await locker.release("k", token)
        assert await locker.holder("k") is None


async def test_it_ends_with_its_time_unless_it_is_extended(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        locker = locker_of(manager)
        token = await locker.acquire("k", 3)
        assert token
        assert await locker.extend("k", token, 8)
        await advance(7)
        assert await locker.acquire("k", 60) is None
        await advance(2)
        again = await locker.acquire("k", 60)
        assert again is not None
        assert not await locker.release("k", token), "a late release frees nobody else's lock"
        assert await locker.holder("k") == again


async def test_force_drops_it_whoever_holds_it(here: Place) -> None:
    async with here.manager() as manager:
        locker = locker_of(manager)
        await locker.acquire("k", 60)
        assert await locker.force_release("k")
        assert not await locker.force_release("k")
        assert await locker.acquire("k", 60) is not None


async def test_asking_for_the_holder_acquires_nothing(here: Place) -> None:
    async with here.manager() as manager:
        locker = locker_of(manager)
        assert await locker.holder("k") is None
        assert await locker.acquire("k", 60) is not None


async def test_long_keys_stay_apart(here: Place) -> None:
    async with here.manager() as manager:
        locker = locker_of(manager)
        assert await locker.acquire("k" * 1000, 60) is not None
        assert await locker.acquire("k" * 999 + "l", 60) is not None
        assert await locker.acquire("K" * 1000, 60) is not None
        assert await locker.acquire("k" * 1000, 60) is None


async def test_another_process_sees_it(shared: Place) -> None:
    async with shared.manager() as manager, shared.manager() as other:
        token = await locker_of(manager).acquire("k", 60)
        assert await locker_of(other).acquire("k", 60) is None
        assert await locker_of(other).holder("k") == token
