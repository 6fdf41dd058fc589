"""The redis driver's wake-ups: none is lost, none is one too many, and nobody polls."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from nimbusq.driver import Claimed, Done, Lane, PutBack, Settlement, Want
from nimbusq.envelope import Envelope, Rate
from nimbusq.errors import StoreUnavailable
from nimbusq_redis import RedisAdapter
from tests.drivers.redis_env import RedisEnv, opened, redis_env
from tests.drivers.redis_servers import redis_server

QUEUES = [f"q{n}" for n in range(200)]


def job(queue: str = "q0", **fields: float) -> Envelope:
    return Envelope(id=str(uuid.uuid4()), name="Probe", queue=queue, **fields)  # type: ignore[arg-type]


def want(queues: Sequence[str] = ("q0",), *, limit: int = 1, wait: float = 15.0, lease: float = 30.0) -> Want:
    lanes = tuple(Lane(queue=queue, limit=limit) for queue in queues)
    return Want(token=uuid.uuid4().hex, limit=limit, lease=lease, wait=wait, lanes=lanes)


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[RedisEnv]:
    """A server of its own, so that its commands can be counted; no testing mode, which adds some."""
    async with redis_server(tmp_path) as port, redis_env(f"redis://127.0.0.1:{port}/0", testing=False) as env:
        yield env


@pytest.fixture
async def adapter(env: RedisEnv) -> RedisAdapter:
    return env.adapter


@asynccontextmanager
async def crew(adapter: RedisAdapter, count: int) -> AsyncIterator[list[RedisAdapter]]:
    """So many workers, each with a connection of its own."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(adapter.clone())) for _ in range(count)]


async def calls(adapter: RedisAdapter) -> int:
    """Commands that clients have sent for claims so far: scripts, and blocking waits."""
    stats = await adapter.link.client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval", "blpop"))


async def waiting(adapter: RedisAdapter, count: int) -> None:
    """Until so many clients are blocked."""
    async with asyncio.timeout(5):
        while (await adapter.link.client.info("clients"))["blocked_clients"] < count:
            await asyncio.sleep(0.005)


async def test_an_idle_worker_hardly_calls(adapter: RedisAdapter) -> None:
    """One look, then each 5 s a blocking call with a look behind it.

    (The server counts the commands of a script too: five a look.)
    """
    await adapter.claim(want(QUEUES, wait=0.0))
    begin = await calls(adapter)
    total = (await adapter.link.client.info("stats"))["total_commands_processed"]
    claimed = await adapter.claim(want(QUEUES, wait=5.0))
    assert not claimed.claims
    assert await calls(adapter) - begin <= 3
    assert (await adapter.link.client.info("stats"))["total_commands_processed"] - total <= 12


async def test_a_job_on_any_of_200_queues_starts_at_once(adapter: RedisAdapter) -> None:
    latencies = []
    async with crew(adapter, 1) as (worker,):
        for _ in range(40):
            async with asyncio.TaskGroup() as group:
                claiming = group.create_task(worker.claim(want(QUEUES)))
                await waiting(adapter, 1)
                sent = job(random.choice(QUEUES))
                begin = time.perf_counter()
                await adapter.push([sent])
                claimed = await claiming
                latencies.append(time.perf_counter() - begin)
            assert [claim.id for claim in claimed.claims] == [sent.id]
    assert sorted(latencies)[37] < 0.05


async def test_one_job_wakes_one_of_many(adapter: RedisAdapter) -> None:
    async with crew(adapter, 20) as workers, asyncio.TaskGroup() as group:
        claims = [group.create_task(worker.claim(want())) for worker in workers]
        await waiting(adapter, 20)
        begin = await calls(adapter)
        await adapter.push([job()])
        await asyncio.wait(claims, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.1)
        assert sum(claim.done() for claim in claims) == 1
        assert await calls(adapter) - begin <= 3  # the push, the claim, and one spare
        for claim in claims:
            claim.cancel()


async def test_many_jobs_wake_as_many_workers_as_they_need(adapter: RedisAdapter) -> None:
    async with crew(adapter, 10) as workers, asyncio.timeout(2), asyncio.TaskGroup() as group:
        claims = [group.create_task(worker.claim(want(limit=2))) for worker in workers]
        await waiting(adapter, 10)
        sent = [job() for _ in range(20)]
        await adapter.push(sent)
    taken = [claim.id for done in claims for claim in done.result().claims]
    assert sorted(taken) == sorted(envelope.id for envelope in sent)


async def test_a_ring_for_what_one_worker_does_not_take_goes_to_another(adapter: RedisAdapter) -> None:
    """The first worker, woken by q1, takes a job of q0 instead."""
    async with crew(adapter, 2) as (both, other), asyncio.timeout(2), asyncio.TaskGroup() as group:
        first = group.create_task(both.claim(want(["q0", "q1"])))
        await waiting(adapter, 1)
        second = group.create_task(other.claim(want(["q1"])))
        await waiting(adapter, 2)
        pushed = [job("q1"), job("q0")]
        await adapter.push(pushed)
    assert [claim.queue for claim in first.result().claims] == ["q0"]
    assert [claim.queue for claim in second.result().claims] == ["q1"]


async def test_a_ring_before_the_wait_is_not_lost(adapter: RedisAdapter) -> None:
    async with crew(adapter, 1) as (worker,), asyncio.timeout(2):
        for _ in range(50):
            async with asyncio.TaskGroup() as group:
                claiming = group.create_task(worker.claim(want()))
                await asyncio.sleep(random.uniform(0, 0.002))
                await adapter.push([job()])
            assert len(claiming.result().claims) == 1


async def test_delayed_jobs_start_on_time_and_wake_one_worker(adapter: RedisAdapter) -> None:
    async with crew(adapter, 10) as workers, asyncio.TaskGroup() as group:
        claims = [group.create_task(worker.claim(want())) for worker in workers]
        await waiting(adapter, 10)
        begin, sent_at = await calls(adapter), time.monotonic()
        await adapter.push([job(delay=0.35)])
        done, _ = await asyncio.wait(claims, return_when=asyncio.FIRST_COMPLETED)
        late = time.monotonic() - sent_at - 0.35
        made = await calls(adapter) - begin
        for claim in claims:
            claim.cancel()
    assert -0.001 < late < 0.05
    assert [claim.waited < 0.05 for claim in done.pop().result().claims] == [True]
    assert made <= 12


async def test_a_delayed_job_is_not_forgotten_by_a_worker_that_dies(adapter: RedisAdapter) -> None:
    async with crew(adapter, 2) as (doomed, other), asyncio.TaskGroup() as group:
        await adapter.push([job(delay=0.8)])
        watching = asyncio.ensure_future(doomed.claim(want()))
        await waiting(adapter, 1)
        claiming = group.create_task(other.claim(want()))
        await waiting(adapter, 2)
        doomed.link._server = None  # it can hand nothing back any more, as if it had been killed
        watching.cancel()
        begin = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await watching
        claimed = await claiming
        assert len(claimed.claims) == 1
        assert 0.5 < time.monotonic() - begin < 1.9


async def test_a_watching_worker_that_gets_busy_hands_the_timer_over(adapter: RedisAdapter) -> None:
    async with crew(adapter, 2) as (first, second), asyncio.TaskGroup() as group:
        await adapter.push([job(delay=0.5)])
        sent_at = time.monotonic()
        watching = group.create_task(first.claim(want()))
        await waiting(adapter, 1)
        other = group.create_task(second.claim(want(["q0"])))
        await waiting(adapter, 2)
        await adapter.push([job()])
        assert len((await watching).claims) == 1
        assert len((await other).claims) == 1
        assert time.monotonic() - sent_at - 0.5 < 0.1


async def test_a_lost_lease_is_taken_back_on_time(adapter: RedisAdapter) -> None:
    async with crew(adapter, 1) as (other,), asyncio.TaskGroup() as group:
        waits = group.create_task(other.claim(want(lease=1.0)))
        await waiting(adapter, 1)
        await adapter.push([job(), job()])
        assert len((await waits).claims) == 1
        await adapter.claim(want(lease=1.0))  # its worker is never heard of again
        begin = time.monotonic()
        claimed = await other.claim(want(lease=1.0, limit=5))
        assert claimed.lost
        assert 0.9 < time.monotonic() - begin < 2.0


async def test_a_rate_opens_on_time(adapter: RedisAdapter) -> None:
    lane = Lane(queue="q0", limit=5, rate=Rate(key="r", per_second=4))
    await adapter.push([job(), job()])
    first = await adapter.claim(Want(token="a", limit=5, lease=30, lanes=(lane,)))
    begin = time.monotonic()
    second = await adapter.claim(Want(token="b", limit=5, lease=30, wait=5, lanes=(lane,)))
    assert (len(first.claims), len(second.claims)) == (1, 1)
    assert 0.2 < time.monotonic() - begin < 1.0


async def test_a_cancelled_claim_hands_back_what_it_took(adapter: RedisAdapter) -> None:
    for ticks in range(30):
        await adapter.push([job()])
        claiming = asyncio.ensure_future(adapter.claim(want(wait=5.0)))
        for _ in range(ticks):
            await asyncio.sleep(0)
        claiming.cancel()
        result = (await asyncio.gather(claiming, return_exceptions=True))[0]
        (depth,) = await adapter.depth(["q0"])
        if isinstance(result, Claimed):
            assert depth.running == 1
            await adapter.settle([Settlement(claim=claim, outcome=Done()) for claim in result.claims])
        else:
            assert isinstance(result, asyncio.CancelledError)
            assert depth.running == 0
            (claim,) = (await adapter.claim(want(wait=0.0))).claims
            assert claim.attempt == 1
            await adapter.settle([Settlement(claim=claim, outcome=Done())])


async def test_a_job_reaches_a_waiting_worker_without_another_trip(
    adapter: RedisAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crew(adapter, 1) as (worker,), asyncio.TaskGroup() as group:
        claiming = group.create_task(worker.claim(want()))
        await waiting(adapter, 1)
        sent: list[object] = []
        monkeypatch.setattr(worker.link._server, "call", lambda *args, **_: sent.append(args))
        await adapter.push([job()])
        assert len((await claiming).claims) == 1
        assert sent == [], "the claim went out with the call that waits"


async def test_a_cancelled_wait_ends_at_once_and_leaves_its_connection(adapter: RedisAdapter) -> None:
    async with crew(adapter, 1) as (worker,):
        connections = None
        for _ in range(5):
            claiming = asyncio.ensure_future(worker.claim(want(wait=5.0)))
            await waiting(adapter, 1)
            begin = time.monotonic()
            claiming.cancel()
            assert isinstance(
                (await asyncio.gather(claiming, return_exceptions=True))[0], asyncio.CancelledError
            )
            assert time.monotonic() - begin < 1.0
            made = (await adapter.link.client.info("stats"))["total_connections_received"]
            connections = connections or made
        assert made == connections


async def test_a_cancelled_wait_passes_its_ring_on(adapter: RedisAdapter) -> None:
    async with crew(adapter, 2) as (leaving, staying):
        for _ in range(20):
            async with asyncio.timeout(3), asyncio.TaskGroup() as group:
                first = group.create_task(leaving.claim(want()))
                await waiting(adapter, 1)
                second = group.create_task(staying.claim(want()))
                await waiting(adapter, 2)
                pushing = group.create_task(adapter.push([job()]))
                for _ in range(random.randrange(6)):
                    await asyncio.sleep(0)
                first.cancel()
                await pushing
                done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
                if first in done and not first.cancelled():
                    second.cancel()
            for claiming in (first, second):
                if not claiming.cancelled():
                    settlements = [Settlement(claim=c, outcome=PutBack(0)) for c in claiming.result().claims]
                    await adapter.settle(settlements)
            assert (await adapter.claim(want(wait=0.0, limit=1))).claims
            await adapter.link.command("FLUSHALL")
