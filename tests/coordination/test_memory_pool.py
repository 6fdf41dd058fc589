"""The seed's in-memory pool, with backpressure instead of loss."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from nimbusq import Fail, Job, Release
from nimbusq.errors import InvalidOption, StoreFull
from nimbusq.memory import BUFFER, MemoryPool, PoolFull


class Note(Job):
    text: str

    async def handle(self) -> None:
        ran.append(self.text)


class Wait(Job):
    gate: ClassVar[asyncio.Event]

    async def handle(self) -> None:
        await self.gate.wait()
        ran.append("wait")


class Bad(Job):
    async def handle(self) -> None:
        raise ValueError("bad")


class GivesUp(Job):
    async def handle(self) -> None:
        raise Fail("enough")


class ComesBack(Job):
    async def handle(self) -> None:
        ran.append("again")
        if ran.count("again") < 3:
            raise Release(0.01)


ran: list[str] = []


@pytest.fixture(autouse=True)
def gate() -> asyncio.Event:
    """Lets the jobs that wait go on."""
    ran.clear()
    Wait.gate = asyncio.Event()
    return Wait.gate


async def test_leaving_it_runs_what_is_queued() -> None:
    async with MemoryPool(workers=2) as pool:
        for n in range(100):
            pool.push(Note(text=str(n)))
    assert sorted(ran, key=int) == [str(n) for n in range(100)]
    assert (pool.processed, pool.failed) == (100, 0)


async def test_a_full_pool_raises_and_loses_nothing(gate: asyncio.Event) -> None:
    async with MemoryPool(workers=1, buffer=2) as pool:
        pool.push(Wait())
        await asyncio.sleep(0)
        pool.push(Note(text="1"))
        pool.push(Note(text="2"))
        with pytest.raises(PoolFull, match=r"holds 2 jobs already: put\(\) waits for room"):
            pool.push(Note(text="3"))
        assert issubclass(PoolFull, StoreFull)
        gate.set()
    assert ran == ["wait", "1", "2"]


async def test_put_waits_for_room(gate: asyncio.Event) -> None:
    async with MemoryPool(workers=1, buffer=1) as pool, asyncio.TaskGroup() as group:
        pool.push(Wait())
        await asyncio.sleep(0)
        pool.push(Note(text="1"))
        putting = group.create_task(pool.put(Note(text="2")))
        await asyncio.sleep(0.02)
        assert not putting.done()
        gate.set()
        await putting
    assert ran == ["wait", "1", "2"]


async def test_it_runs_as_many_at_once_as_it_has_workers(gate: asyncio.Event) -> None:
    async with MemoryPool(workers=3) as pool:
        for _ in range(3):
            pool.push(Wait())
        pool.push(Note(text="fourth"))
        await asyncio.sleep(0.02)
        assert ran == []
        gate.set()
    assert len(ran) == 4


async def test_errors_are_counted_and_logged_and_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryPool(workers=1) as pool:
        for job in (Bad(), GivesUp(), Note(text="after")):
            pool.push(job)
    assert ran == ["after"]
    assert (pool.processed, pool.failed) == (1, 2)
    assert "job Bad failed" in caplog.text
    assert "job GivesUp failed" in caplog.text


async def test_a_released_job_runs_again() -> None:
    async with MemoryPool(workers=1) as pool:
        pool.push(ComesBack())
    assert ran == ["again"] * 3
    assert pool.processed == 1


async def test_join_waits_for_what_was_queued() -> None:
    async with MemoryPool() as pool:
        pool.push(Note(text="1"))
        await pool.join()
        assert ran == ["1"]


async def test_an_error_in_the_block_ends_it_without_running_the_rest() -> None:
    async def block() -> None:
        async with MemoryPool(workers=1) as pool:
            pool.push(Wait())
            pool.push(Note(text="never"))
            await asyncio.sleep(0)
            raise KeyError("the block")

    with pytest.raises(KeyError):
        await block()
    assert ran == []


async def test_it_holds_1024_jobs_and_has_four_workers_by_default(gate: asyncio.Event) -> None:
    assert BUFFER == 1024
    async with MemoryPool() as pool:
        for _ in range(4):
            pool.push(Wait())
        await asyncio.sleep(0)
        for n in range(1024):
            pool.push(Note(text=str(n)))
        with pytest.raises(PoolFull):
            pool.push(Note(text="one too many"))
        gate.set()
    assert len(ran) == 1028


@pytest.mark.parametrize(("workers", "buffer"), [(0, 1), (-1, 1), (1, 0)])
def test_sizes_out_of_range_are_refused(workers: int, buffer: int) -> None:
    with pytest.raises(InvalidOption):
        MemoryPool(workers, buffer=buffer)
