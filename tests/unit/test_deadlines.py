"""Deadlines: each call is cut off at its own, by one timer for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from nimbusq.driver import Deadlines

T = TypeVar("T")


class Ticker(asyncio.SelectorEventLoop):
    """A loop whose time only passes when a test says so, and which counts the timers it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.timers: list[float] = []

    def time(self) -> float:
        return self.now

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, **more: object
    ) -> asyncio.TimerHandle:
        self.timers.append(when - 1000.0)
        return super().call_at(when, callback, *args, **more)  # type: ignore[arg-type]

    async def pass_to(self, seconds: float) -> None:
        self.now = 1000.0 + seconds
        for _ in range(12):
            await asyncio.sleep(0)


@pytest.fixture
def ticker() -> Ticker:
    return Ticker()


def run(ticker: Ticker, scene: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=lambda: ticker) as runner:
        runner.run(scene())  # type: ignore[arg-type]


class Curt(Ticker):
    """As uvloop's: what is due at once gets a handle that does not tell when."""

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: object, **more: object
    ) -> asyncio.Handle:
        if when <= self.now:
            return self.call_soon(callback, *args, **more)  # type: ignore[arg-type]
        return super().call_at(when, callback, *args, **more)


async def forever() -> None:
    await asyncio.Event().wait()


async def keep(deadlines: Deadlines, call: Coroutine[Any, Any, T], seconds: float) -> T:
    with deadlines.within(seconds):
        return await call


def test_calls_one_after_the_other_arm_one_timer(ticker: Ticker) -> None:
    async def scene() -> None:
        deadlines = Deadlines()
        for _ in range(20):
            assert await keep(deadlines, asyncio.sleep(0, "answer"), 5.0) == "answer"
        assert ticker.timers == [5.0]

    run(ticker, scene)


def test_each_call_is_cut_off_at_its_own_deadline(ticker: Ticker) -> None:
    async def scene() -> None:
        deadlines = Deadlines()
        calls = [asyncio.ensure_future(keep(deadlines, forever(), limit)) for limit in (5.0, 1.0, 3.0, 3.0)]
        await ticker.pass_to(0.0)
        await ticker.pass_to(0.999)
        assert [call.done() for call in calls] == [False, False, False, False]
        await ticker.pass_to(1.0)
        assert [call.done() for call in calls] == [False, True, False, False]
        await ticker.pass_to(3.0)
        assert [call.done() for call in calls] == [False, True, True, True]
        await ticker.pass_to(5.0)
        assert [type(call.exception()) for call in calls] == [TimeoutError] * 4
        assert ticker.timers == [5.0, 1.0, 3.0, 5.0]

    run(ticker, scene)


def test_a_timer_that_outlives_its_call_is_armed_for_the_next(ticker: Ticker) -> None:
    async def scene() -> None:
        deadlines = Deadlines()
        await keep(deadlines, asyncio.sleep(0), 5.0)
        await ticker.pass_to(4.0)
        late = asyncio.ensure_future(keep(deadlines, forever(), 5.0))
        await ticker.pass_to(4.0)
        await ticker.pass_to(5.0)
        assert not late.done()
        await ticker.pass_to(9.0)
        assert isinstance(late.exception(), TimeoutError)
        assert ticker.timers == [5.0, 9.0]

    run(ticker, scene)


def test_a_call_that_cleans_up_slowly_is_told_once(ticker: Ticker) -> None:
    told = []

    async def slow() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            told.append(ticker.now)
            await asyncio.sleep(3.0)
            raise

    async def scene() -> None:
        deadlines = Deadlines()
        call = asyncio.ensure_future(keep(deadlines, slow(), 1.0))
        other = asyncio.ensure_future(keep(deadlines, forever(), 2.0))
        for moment in (0.0, 1.0, 2.0, 4.0):
            await ticker.pass_to(moment)
        assert isinstance(call.exception(), TimeoutError)
        assert isinstance(other.exception(), TimeoutError)
        assert told == [1001.0]

    run(ticker, scene)


def test_a_caller_that_is_cancelled_is_not_told_of_a_deadline(ticker: Ticker) -> None:
    async def scene() -> None:
        deadlines = Deadlines()
        call = asyncio.ensure_future(keep(deadlines, forever(), 1.0))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await ticker.pass_to(1.0)

    run(ticker, scene)


def test_a_cancel_that_comes_with_the_deadline_is_not_swallowed(ticker: Ticker) -> None:
    async def scene() -> None:
        deadlines = Deadlines()
        call = asyncio.ensure_future(keep(deadlines, forever(), 1.0))
        await ticker.pass_to(0.0)
        ticker.call_at(1001.0, call.cancel)
        await ticker.pass_to(1.0)
        assert call.cancelled()

    run(ticker, scene)


def test_outside_any_task_there_is_no_deadline(ticker: Ticker) -> None:
    async def scene() -> None:
        failed: asyncio.Future[None] = ticker.create_future()

        def enter() -> None:
            try:
                Deadlines().within(1.0).__enter__()
            except RuntimeError as error:
                failed.set_exception(error)

        ticker.call_soon(enter)
        with pytest.raises(RuntimeError, match="in a task"):
            await failed

    run(ticker, scene)


def test_closed_it_keeps_no_timer(ticker: Ticker) -> None:
    async def scene() -> None:
        deadlines = Deadlines()
        await keep(deadlines, asyncio.sleep(0), 5.0)
        deadlines.close()
        await keep(deadlines, asyncio.sleep(0), 5.0)
        assert ticker.timers == [5.0, 5.0]

    run(ticker, scene)


def test_closed_it_cuts_nothing_off_any_more(ticker: Ticker) -> None:
    """A call of a loop that has ended cannot be: its task takes no cancel."""

    async def scene() -> None:
        deadlines = Deadlines()
        left = asyncio.ensure_future(keep(deadlines, forever(), 1.0))
        await ticker.pass_to(0.0)
        deadlines.close()
        later = asyncio.ensure_future(keep(deadlines, forever(), 5.0))
        await ticker.pass_to(0.0)
        await ticker.pass_to(5.0)
        assert isinstance(later.exception(), TimeoutError)
        assert not left.done()

    run(ticker, scene)


def test_a_deadline_that_has_come_already_hinders_no_other() -> None:
    async def scene() -> None:
        deadlines = Deadlines()
        calls = [keep(deadlines, forever(), limit) for limit in (0.0, 0.0, 1.0)]
        first, second, third = [asyncio.ensure_future(call) for call in calls]
        await asyncio.wait([first, second])
        assert [type(call.exception()) for call in (first, second)] == [TimeoutError, TimeoutError]
        assert not third.done()

    run(Curt(), scene)
