"""The way to a Redis server, without one: what is kept from one event loop to the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nimbusq.errors import StoreUnavailable
from nimbusq_redis import link as links
from nimbusq_redis.link import Link
from nimbusq_redis.options import RedisOptions


class Frozen:
    """A server that answers the call which opens the link, and no other."""

    def __init__(self, _: RedisOptions) -> None:
        self.calls = 0

    async def call(self, *_: Any, **__: Any) -> None:
        self.calls += 1
        if self.calls > 1:
            await asyncio.Event().wait()

    async def aclose(self) -> None: ...


def test_a_link_that_is_opened_in_another_loop_keeps_its_deadlines_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A timer that a call behind its end had armed in the loop before never goes off."""
    monkeypatch.setattr(links, "make_server", Frozen)
    link = Link(RedisOptions(url="redis://nowhere"), "{q}:", testing=False)

    async def call_when_closed() -> None:
        with pytest.raises(StoreUnavailable, match="not open"):
            await link.run("now", seconds=0.1)

    async def open_and_call() -> None:
        await link.open()
        async with asyncio.timeout(1.0):
            with pytest.raises(StoreUnavailable, match="did not answer within"):
                await link.run("now", seconds=0.15)
        await link.aclose()

    asyncio.run(call_when_closed())
    asyncio.run(open_and_call())
