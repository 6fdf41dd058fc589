"""Calls from one thread's event loop into another's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from nimbusq.errors import StoreUnavailable
from nimbusq_kafka.crossing import call_in


class Other:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.cancelled = threading.Event()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    async def ident(self) -> int:
        return threading.get_ident()

    async def fail(self) -> None:
        raise LookupError("over there")

    async def wait(self, begun: threading.Event) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def cancel_all(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def end(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


@pytest.fixture
def other() -> Iterator[Other]:
    other = Other()
    yield other
    other.end()


async def test_it_runs_in_the_other_thread_and_answers_in_this_one(other: Other) -> None:
    assert await call_in(other.loop, other.ident()) == other._thread.ident


async def test_an_error_is_raised_here(other: Other) -> None:
    with pytest.raises(LookupError, match="over there"):
        await call_in(other.loop, other.fail())


async def test_a_caller_that_is_cancelled_cancels_it_there(other: Other) -> None:
    begun = threading.Event()
    calling = asyncio.create_task(call_in(other.loop, other.wait(begun)))
    await asyncio.to_thread(begun.wait, 5)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert await asyncio.to_thread(other.cancelled.wait, 5)


async def test_one_that_is_cancelled_before_it_begins_there_never_runs(other: Other) -> None:
    held, begun = threading.Event(), threading.Event()
    other.loop.call_soon_threadsafe(held.wait, 5)
    calling = asyncio.create_task(call_in(other.loop, other.wait(begun)))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    held.set()
    await call_in(other.loop, other.ident())
    assert not begun.is_set()


async def test_what_is_cancelled_there_is_an_outage_here(other: Other) -> None:
    begun = threading.Event()
    calling = asyncio.create_task(call_in(other.loop, other.wait(begun)))
    await asyncio.to_thread(begun.wait, 5)
    await call_in(other.loop, other.cancel_all())
    with pytest.raises(StoreUnavailable, match="ended during the call"):
        await calling


async def test_a_loop_that_has_ended_is_an_outage(other: Other) -> None:
    other.end()
    with pytest.raises(StoreUnavailable, match="has ended"):
        await call_in(other.loop, other.ident())
