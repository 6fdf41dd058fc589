"""A session's end, as those see it who call it from the application's loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from nimbusq.driver import Claimed, Want
from nimbusq.errors import StoreUnavailable
from nimbusq_kafka import session as sessions
from nimbusq_kafka.session import Session


class Parts:
    """Of a session whose only duty fails at once, and which then takes its time to disconnect."""

    leaving, left = threading.Event(), threading.Event()

    def __init__(self, *_: object) -> None:
        self.stop = asyncio.Event()

    async def open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._leave)

    async def _leave(self) -> None:
        self.leaving.set()
        await asyncio.to_thread(self.left.wait, 5)

    def duties(self) -> list[Coroutine[Any, Any, Any]]:
        return [self._fail()]

    async def _fail(self) -> None:
        raise LookupError("a bug")

    async def claim(self, want: Want) -> Claimed:
        raise AssertionError("the session is over")


async def test_a_session_that_an_error_has_ended_is_over_before_it_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that reached its loop between the last task's end and the loop's would never be answered."""
    monkeypatch.setattr(sessions, "_Parts", Parts)
    unused: Any = None
    session = Session(unused, unused)
    session.start()
    await session.joined()
    try:
        assert await asyncio.to_thread(Parts.leaving.wait, 5)
        with pytest.raises(StoreUnavailable, match="the next claim starts another"):
            await session.claim(Want(token="t", limit=1, lease=60.0, lanes=()))
    finally:
        Parts.left.set()
        await session.aclose()
