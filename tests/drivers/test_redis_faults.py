"""The redis driver when the server, the link or the data fail."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from nimbusq.driver import (
    BatchRecord,
    Claim,
    Done,
    Ending,
    Failed,
    FailedRecord,
    HistoryRow,
    Lane,
    NewBatch,
    Retry,
    Settlement,
    SettleStatus,
    Want,
)
from nimbusq.envelope import Envelope, Rate, Unique, Unreadable
from nimbusq.errors import StoreError, StoreFull, StoreUnavailable
from nimbusq.testing.audit import check
from nimbusq_redis import RedisAdapter
from nimbusq_redis.scripts import names, script
from tests.drivers.proxy import Proxy, proxied
from tests.drivers.redis_env import RedisEnv, redis_env
from tests.drivers.redis_servers import redis_server

pytestmark = pytest.mark.redis
QUEUE = "mail"


def job(**fields: Any) -> Envelope:
    return Envelope(**{"id": str(uuid.uuid4()), "name": "Probe", "queue": QUEUE, **fields})


def local(port: int) -> str:
    return f"redis://127.0.0.1:{port}/0"


def want(limit: int = 10, **fields: Any) -> Want:
    lanes = (Lane(queue=QUEUE, limit=limit),)
    return Want(**{"token": uuid.uuid4().hex, "limit": limit, "lease": 30.0, "lanes": lanes, **fields})


async def claim_in_vain(adapter: RedisAdapter) -> None:
    """Wait for jobs until the store cannot be reached."""
    with pytest.raises(StoreUnavailable):
        await adapter.claim(want(wait=20.0))


async def claim(adapter: RedisAdapter, **fields: Any) -> list[Claim]:
    return list((await adapter.claim(want(**fields))).claims)


@pytest.fixture
async def env(redis_url: str) -> AsyncIterator[RedisEnv]:
    async with redis_env(redis_url) as env:
        yield env
        assert check(await env.audit()) == []


@pytest.fixture
async def adapter(env: RedisEnv) -> RedisAdapter:
    return env.adapter


class TestLostReplies:
    """The server did what was asked, its answer never came, and the same call is made again."""

    @pytest.fixture
    async def proxy(self, redis_url: str) -> AsyncIterator[Proxy]:
        parts = urlsplit(redis_url)
        async with proxied(parts.hostname or "127.0.0.1", parts.port or 6379) as proxy:
            yield proxy

    @pytest.fixture
    async def env(self, proxy: Proxy) -> AsyncIterator[RedisEnv]:
        host, port = proxy.address
        async with redis_env(f"redis://{host}:{port}/0") as env:
            for name in names():  # else the reply that is lost may be NOSCRIPT
                await env.adapter.link.client.script_load(script(name).text)
            yield env
            assert check(await env.audit()) == []

    @pytest.fixture
    def twice(self, proxy: Proxy) -> Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]:
        async def call_twice(call: Callable[[], Awaitable[Any]]) -> Any:
            proxy.lose_reply_to = b"EVALSHA"
            with pytest.raises(StoreUnavailable):
                await call()
            assert proxy.lost == 1
            return await call()

        return call_twice

    async def test_push(self, adapter: RedisAdapter, twice: Any) -> None:
        envelope = job(unique=Unique(key="k"))
        (pushed,) = await twice(lambda: adapter.push([envelope]))
        assert pushed.holder is None
        (depth,) = await adapter.depth([QUEUE])
        assert depth.pending == 1

    async def test_a_push_of_a_job_that_was_done_meanwhile(self, adapter: RedisAdapter) -> None:
        envelope = job()
        await adapter.push([envelope])
        (claimed,) = await claim(adapter)
        await adapter.settle([Settlement(claim=claimed, outcome=Done())])
        await adapter.push([envelope])
        assert await claim(adapter) == []

    async def test_claim(self, adapter: RedisAdapter, twice: Any) -> None:
        await adapter.push([job(), job(), job()])
        asked = want(limit=2)
        claimed = await twice(lambda: adapter.claim(asked))
        assert [c.attempt for c in claimed.claims] == [1, 1]
        (depth,) = await adapter.depth([QUEUE])
        assert (depth.pending, depth.running) == (1, 2)

    async def test_extend(self, adapter: RedisAdapter, twice: Any) -> None:
        await adapter.push([job()])
        claims = await claim(adapter)
        (renewal,) = await twice(lambda: adapter.extend(claims, lease=30.0))
        assert renewal.value == "renewed"

    @pytest.mark.parametrize("outcome", [Done(), Failed("no"), Retry(0.0, "again")])
    async def test_settle(self, adapter: RedisAdapter, twice: Any, outcome: Any) -> None:
        await adapter.push([job()])
        (claimed,) = await claim(adapter)
        settlement = Settlement(claim=claimed, outcome=outcome)
        (settled,) = await twice(lambda: adapter.settle([settlement]))
        assert settled.status is SettleStatus.ALREADY

    async def test_a_settlement_with_all_that_follows(self, adapter: RedisAdapter, twice: Any) -> None:
        batches = adapter.stores.batches
        assert batches is not None
        last, following = job(batch_id="b"), job()
        await batches.create(NewBatch(id="b", then=job(id="then")))
        await batches.add("b", [last], offset=0)
        await batches.seal("b")
        (claimed,) = await claim(adapter)
        settlement = Settlement(
            claim=claimed,
            outcome=Done(b"1"),
            push=(following,),
            record=BatchRecord(batch_id="b", member=last.id, failed=False),
            history=HistoryRow(id=last.id, queue=QUEUE, name="Probe", state="done", attempt=1),
        )
        (settled,) = await twice(lambda: adapter.settle([settlement]))
        assert settled.batch.state.finished
        assert (settled.batch.state.pending, settled.batch.counted, settled.batch.finished) == (
            0,
            False,
            False,
        )
        assert sorted(c.id for c in await claim(adapter)) == sorted([following.id, "then"])

    async def test_batch_record(self, adapter: RedisAdapter, twice: Any) -> None:
        batches = adapter.stores.batches
        assert batches is not None
        member = job(batch_id="b")
        await batches.create(NewBatch(id="b"))
        await batches.add("b", [member, job(batch_id="b")], offset=0)
        record = BatchRecord(batch_id="b", member=member.id, failed=True, error="no")
        update = await twice(lambda: batches.record(record))
        assert (update.state.processed, update.state.failed, update.state.errors) == (1, 1, ("no",))

    async def test_batch_add(self, adapter: RedisAdapter, twice: Any) -> None:
        batches = adapter.stores.batches
        assert batches is not None
        await batches.create(NewBatch(id="b"))
        members = [job(batch_id="b") for _ in range(3)]
        added = await twice(lambda: batches.add("b", members, offset=0))
        assert (added.mark, list(added.pushed)) == (3, [])
        assert len(await claim(adapter)) == 3

    async def test_limiter(self, adapter: RedisAdapter, proxy: Proxy) -> None:
        """A token that nobody heard of is spent: the rate is kept, and the caller told."""
        limiter, rate = adapter.stores.limiter, Rate(key="r", per_second=1, burst=3)
        assert limiter is not None
        proxy.lose_reply_to = b"EVALSHA"
        with pytest.raises(StoreUnavailable):
            await limiter.reserve(rate)
        assert (await limiter.reserve(rate, 5)).granted == 2

    async def test_unique_locker(self, adapter: RedisAdapter, proxy: Proxy) -> None:
        """A lock that nobody heard of ends with its time."""
        locker = adapter.stores.locker
        assert locker is not None
        proxy.lose_reply_to = b"SET"
        with pytest.raises(StoreUnavailable):
            await locker.acquire("k", 5)
        assert await locker.acquire("k", 5) is None
        await adapter.advance(5)
        assert await locker.acquire("k", 5) is not None

    async def test_schedule_fire(self, adapter: RedisAdapter, twice: Any) -> None:
        schedules = adapter.stores.schedules
        assert schedules is not None
        state = await schedules.register("nightly", {})
        tick = (state.last_tick or 0.0) + 1
        assert await twice(lambda: schedules.fire("nightly", tick, job())) is None
        assert len(await claim(adapter)) == 1

    async def test_retry_of_a_failed_job(self, adapter: RedisAdapter, proxy: Proxy) -> None:
        failed = adapter.stores.failed
        assert failed is not None
        envelope = job()
        record = FailedRecord(
            id=envelope.id, queue=QUEUE, name="Probe", wire=envelope.to_wire(), error="no", kind="ValueError"
        )
        await failed.push(record)
        proxy.lose_reply_to = script("requeue").sha.encode()
        with pytest.raises(StoreUnavailable):
            await failed.retry(envelope.id)
        assert await failed.retry(envelope.id) is None
        assert [c.id for c in await claim(adapter)] == [envelope.id]

    async def test_a_hundred_pushes_with_every_fifth_reply_lost(
        self, adapter: RedisAdapter, proxy: Proxy
    ) -> None:
        for n in range(100):
            envelope = job()
            proxy.lose_reply_to = b"EVALSHA" if n % 5 == 0 else b""
            try:
                await adapter.push([envelope])
            except StoreUnavailable:
                await adapter.push([envelope])
        assert proxy.lost == 20
        claims = await claim(adapter, limit=200)
        assert len({c.id for c in claims}) == len(claims) == 100


class TestLinks:
    """Connections that break, and servers that do not answer."""

    @pytest.fixture
    async def proxy(self, redis_url: str) -> AsyncIterator[Proxy]:
        parts = urlsplit(redis_url)
        async with proxied(parts.hostname or "127.0.0.1", parts.port or 6379) as proxy:
            yield proxy

    @pytest.fixture
    async def env(self, proxy: Proxy) -> AsyncIterator[RedisEnv]:
        host, port = proxy.address
        async with redis_env(f"redis://{host}:{port}/0", options={"timeout": 0.3}) as env:
            yield env
            proxy.frozen = False

    async def test_a_frozen_link_is_given_up_at_the_deadline(
        self, adapter: RedisAdapter, proxy: Proxy
    ) -> None:
        proxy.frozen = True
        begin = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"within 0\.3 s"):
            await adapter.push([job()])
        assert time.monotonic() - begin < 1.0
        proxy.frozen = False
        await adapter.push([job()])
        assert len(await claim(adapter)) == 1

    async def test_a_renewal_has_a_sixth_of_the_lease(self, adapter: RedisAdapter, proxy: Proxy) -> None:
        await adapter.push([job()])
        claims = await claim(adapter)
        proxy.frozen = True
        with pytest.raises(StoreUnavailable, match=r"within 0\.1 s"):
            await adapter.extend(claims, lease=0.6)

    async def test_a_waiting_claim_notices_a_cut(self, adapter: RedisAdapter, proxy: Proxy) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(claim_in_vain(adapter))
            await asyncio.sleep(0.1)
            assert proxy.cut() > 0
            await waiting

    async def test_a_waiting_claim_notices_a_half_open_link(
        self, adapter: RedisAdapter, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Within its blocking call's 5 s and 2 s of patience, which are shortened here."""
        monkeypatch.setattr("nimbusq_redis.doorbell._BLOCK", 0.2)
        monkeypatch.setattr("nimbusq_redis.doorbell._MARGIN", 0.2)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(claim_in_vain(adapter))
            await asyncio.sleep(0.1)
            proxy.frozen = True
            begin = time.monotonic()
            await waiting
            assert time.monotonic() - begin < 2.0
        proxy.frozen = False
        await adapter.push([job()])
        assert len(await claim(adapter)) == 1

    async def test_an_adapter_that_is_not_open_says_so(self, redis_url: str, adapter: RedisAdapter) -> None:
        with pytest.raises(StoreUnavailable, match="not open"):
            await adapter.clone().push([job()])

    async def test_opening_where_nobody_listens_fails(self, adapter: RedisAdapter) -> None:
        other = RedisAdapter.from_url("redis://127.0.0.1:1", adapter._settings)
        with pytest.raises(StoreUnavailable, match="Connect"):
            await other.open()


class TestServer:
    """What a server does to its clients in its life."""

    async def test_script_flush(self, adapter: RedisAdapter) -> None:
        """EVALSHA falls back to EVAL for each verb."""
        flush = adapter.link.client.script_flush
        await flush()
        await adapter.push([job()])
        await flush()
        (claimed,) = await claim(adapter)
        await flush()
        await adapter.extend([claimed], lease=5)
        await flush()
        (settled,) = await adapter.settle([Settlement(claim=claimed, outcome=Done())])
        assert settled.status is SettleStatus.SETTLED

    async def test_readonly_after_a_failover(self, tmp_path: Path) -> None:
        async with redis_server(tmp_path) as port, redis_env(local(port)) as env:
            adapter = env.adapter
            await adapter.push([job()])
            await adapter.link.client.replicaof("127.0.0.1", "1")
            for call in (adapter.push([job()]), adapter.claim(want())):
                with pytest.raises(StoreUnavailable, match=r"READONLY|read.only"):
                    await call
            await adapter.link.client.replicaof("NO", "ONE")
            (claimed,) = await claim(adapter)
            (settled,) = await adapter.settle([Settlement(claim=claimed, outcome=Done())])
            assert settled.status is SettleStatus.SETTLED

    async def test_a_blocked_claim_survives_the_change_to_a_replica(self, tmp_path: Path) -> None:
        async with redis_server(tmp_path) as port, redis_env(local(port)) as env:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(claim_in_vain(env.adapter))
                await asyncio.sleep(0.1)
                await env.adapter.link.client.replicaof("127.0.0.1", "1")
                await waiting
            await env.adapter.link.client.replicaof("NO", "ONE")

    async def test_a_full_server_refuses_jobs_and_lets_the_queue_drain(self, tmp_path: Path) -> None:
        async with redis_server(tmp_path) as port, redis_env(local(port)) as env:
            adapter = env.adapter
            await adapter.push([job(body=b"x" * 1000) for _ in range(100)])
            await adapter.link.client.config_set("maxmemory", 1_000_000)
            refused = job()
            with pytest.raises(StoreFull):
                await adapter.push([refused])
            done: list[str] = []
            while claims := await claim(adapter):
                assert (await adapter.extend(claims, lease=30))[0].value == "renewed"
                settled = await adapter.settle(
                    [
                        Settlement(
                            claim=c,
                            outcome=Done(),
                            history=HistoryRow(id=c.id, queue=QUEUE, name="P", state="done", attempt=1),
                        )
                        for c in claims
                    ]
                )
                assert {s.status for s in settled} == {SettleStatus.SETTLED}
                done += (c.id for c in claims)
            assert len(set(done)) == len(done) == 100
            assert refused.id not in done
            await adapter.link.client.config_set("maxmemory", 0)
            await adapter.push([refused])
            assert [c.id for c in await claim(adapter)] == [refused.id]

    async def test_a_killed_server_has_kept_what_it_had_answered(self, tmp_path: Path) -> None:
        """With an append-only file, which `doctor` asks for."""
        flags = ("--appendonly", "yes")
        sent = [job() for _ in range(20)]
        async with (
            redis_server(tmp_path, *flags) as port,
            redis_env(local(port), prefix="k", dropped=False) as env,
        ):
            await env.adapter.push(sent)
            leased = await claim(env.adapter, limit=5)
        async with redis_server(tmp_path, *flags) as port, redis_env(local(port), prefix="k") as env:
            claims = await claim(env.adapter, limit=50)
            assert {c.id for c in claims} == {e.id for e in sent} - {c.id for c in leased}
            (settled,) = await env.adapter.settle([Settlement(claim=leased[0], outcome=Done())])
            assert settled.status is SettleStatus.SETTLED


class TestDamage:
    """Entries that were deleted, evicted or restored in part."""

    @pytest.fixture
    async def env(self, redis_url: str) -> AsyncIterator[RedisEnv]:
        """Its audit is not replayed: such a lease ends before its time."""
        async with redis_env(redis_url, options={"sweep_every": 0.05}) as env:
            yield env

    async def test_a_running_job_whose_lease_entry_is_gone_runs_again(self, adapter: RedisAdapter) -> None:
        await adapter.push([job()])
        (lost,) = await claim(adapter)
        await adapter.link.command("DEL", adapter.link.key(f"leased:{QUEUE}"))
        async with asyncio.timeout(5):
            while not (again := await claim(adapter)):
                await asyncio.sleep(0.05)
        assert (again[0].id, again[0].attempt, again[0].reclaimed) == (lost.id, 2, True)

    async def test_a_renewal_repairs_a_lease_entry(self, adapter: RedisAdapter) -> None:
        await adapter.push([job()])
        claims = await claim(adapter)
        await adapter.link.command("DEL", adapter.link.key(f"leased:{QUEUE}"), adapter.link.key("timers"))
        await adapter.extend(claims, lease=30)
        (depth,) = await adapter.depth([QUEUE])
        assert depth.running == 1
        await adapter.advance(31)
        assert [c.attempt for c in await claim(adapter)] == [2]

    async def test_a_job_without_a_payload_is_handed_out_once_to_be_ended(
        self, adapter: RedisAdapter
    ) -> None:
        await adapter.push([job(max_attempts=1)])
        await adapter.link.command("DEL", adapter.link.key("jobs"))
        (claimed,) = await claim(adapter)
        assert isinstance(claimed.envelope, Unreadable)
        assert "missing" in claimed.envelope.error
        record = FailedRecord(
            id=claimed.id,
            queue=QUEUE,
            name="unreadable",
            wire=b"",
            error="payload missing",
            kind="UnreadableJob",
        )
        await adapter.settle([Settlement(claim=claimed, outcome=Failed("payload missing"), failed=record)])
        assert await claim(adapter) == []
        assert adapter.stores.failed is not None
        assert await adapter.stores.failed.count() == 1

    async def test_a_running_job_without_a_payload_and_without_a_worker(self, adapter: RedisAdapter) -> None:
        await adapter.push([job()])
        await claim(adapter)
        await adapter.link.command("DEL", adapter.link.key("jobs"))
        await adapter.advance(31)
        (again,) = await claim(adapter)
        assert (again.attempt, isinstance(again.envelope, Unreadable)) == (2, True)

    async def test_a_lost_state_of_a_running_job_is_taken_back(self, adapter: RedisAdapter) -> None:
        await adapter.push([job()])
        (lost,) = await claim(adapter)
        await adapter.link.command("DEL", adapter.link.key("running"))
        (settled,) = await adapter.settle([Settlement(claim=lost, outcome=Done())])
        assert settled.status is SettleStatus.LOST

    async def test_the_last_run_lost_is_an_ending(self, adapter: RedisAdapter) -> None:
        await adapter.push([job(max_attempts=1)])
        await claim(adapter)
        await adapter.advance(31)
        claimed = await adapter.claim(want(limit=0))
        assert [(c.ending, c.attempt) for c in claimed.claims] == [(Ending.LOST, 1)]
        assert [lost.attempt for lost in claimed.lost] == [1]


async def test_a_bad_call_is_a_store_error(adapter: RedisAdapter) -> None:
    await adapter.link.command("SET", adapter.link.key("timers"), "no sorted set")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await adapter.claim(want())
    await adapter.link.command("DEL", adapter.link.key("timers"))
