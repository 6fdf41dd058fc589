"""What the redis driver stores, and what it leaves behind."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from nimbusq.driver import (
    BatchRecord,
    Claim,
    Done,
    DriverSettings,
    Failed,
    FailedRecord,
    HistoryRow,
    Lane,
    NewBatch,
    PutBack,
    Retry,
    Settlement,
    Want,
    WorkerReport,
)
from nimbusq.envelope import Envelope, Overlap, Rate, Unique
from nimbusq_redis import RedisAdapter
from nimbusq_redis.link import Link
from nimbusq_redis.options import RedisOptions
from nimbusq_redis.refs import ref, unref
from nimbusq_redis.scripts import names, script
from nimbusq_redis.wires import restore, shorten
from tests.drivers.redis_env import RedisEnv, keys, opened, redis_env
from tests.drivers.redis_servers import redis_server

pytestmark = pytest.mark.redis
LUA = Path(__file__).parents[2] / "drivers" / "nimbusq_redis" / "lua"
QUEUE = "default"


def job(**fields: Any) -> Envelope:
    return Envelope(**{"id": str(uuid.uuid4()), "name": "noop", "queue": QUEUE, **fields})


async def claim(adapter: RedisAdapter, limit: int = 100) -> list[Claim]:
    lanes = (Lane(queue=QUEUE, limit=limit),)
    return list(
        (await adapter.claim(Want(token=uuid.uuid4().hex, limit=limit, lease=30, lanes=lanes))).claims
    )


@pytest.fixture
async def env(redis_url: str) -> AsyncIterator[RedisEnv]:
    async with redis_env(redis_url) as env:
        yield env


@pytest.fixture
async def plain(redis_url: str) -> AsyncIterator[RedisAdapter]:
    """Not in testing mode, which stores an audit and a skew."""
    async with redis_env(redis_url, testing=False) as env:
        yield env.adapter


async def without_ttl(adapter: RedisAdapter) -> list[str]:
    return [
        name
        for name in await keys(adapter)
        if await adapter.link.command("TTL", adapter.link.key(name)) == -1
    ]


class TestLeftovers:
    async def test_plain_jobs_leave_nothing_without_a_ttl(self, plain: RedisAdapter) -> None:
        await plain.push([job() for _ in range(50)] + [job(delay=0.01)])
        done = 0
        while done < 51:
            claims = await claim(plain)
            await plain.settle([Settlement(claim=c, outcome=Done()) for c in claims])
            done += len(claims)
        assert await without_ttl(plain) == []
        assert {re.sub(r"\d+", "N", name) for name in await keys(plain)} <= {
            "gone:N",
            "bell:default",
            "watched",
        }

    async def test_nor_do_jobs_with_everything(self, env: RedisEnv) -> None:
        adapter = env.adapter
        batches = adapter.stores.batches
        assert batches is not None
        await batches.create(NewBatch(id="b", finally_=job(id="finally")))
        members = [job(batch_id="b") for _ in range(5)]
        await batches.add("b", members, offset=0)
        await batches.seal("b")
        await adapter.push(
            [
                *(job(unique=Unique(key=str(n))) for n in range(5)),
                job(unique=Unique(key="k", mode="lock", ttl=60)),
                job(overlap=Overlap(key="o")),
                job(overlap=Overlap(key="o")),
                job(rate=Rate(key="r", per_second=100, burst=1)),
                job(rate=Rate(key="r", per_second=100, burst=1)),
                job(delay=5, priority=1, expires_in=50),
            ]
        )
        for round_ in range(6):
            for c in await claim(adapter):
                outcome = Retry(1, "again") if round_ == 0 else PutBack(1) if round_ == 1 else Done(b"1")
                record = None
                if isinstance(outcome, Done) and getattr(c.envelope, "batch_id", None):
                    record = BatchRecord(batch_id="b", member=c.id, failed=False)
                await adapter.settle([Settlement(claim=c, outcome=outcome, record=record)])
            await adapter.advance(6)
        (depth,) = await adapter.depth([QUEUE])
        assert (depth.pending, depth.delayed, depth.running) == (0, 0, 0)
        assert await without_ttl(adapter) == ["audit", "skew"]
        await adapter.advance(8 * 86400)
        assert await keys(adapter) == ["audit", "skew"] or await keys(adapter) == [
            "audit",
            "bell:default",
            "skew",
        ]

    async def test_failed_jobs_stay_until_they_are_forgotten(self, env: RedisEnv) -> None:
        adapter, failed = env.adapter, env.adapter.stores.failed
        assert failed is not None
        await adapter.push([job()])
        (c,) = await claim(adapter)
        record = FailedRecord(
            id=c.id,
            queue=QUEUE,
            name="noop",
            wire=c.envelope.to_wire(),
            error="e",
            kind="K",
            fingerprint="f",  # type: ignore[union-attr]
        )
        await adapter.settle([Settlement(claim=c, outcome=Failed("e"), failed=record)])
        kept = [
            "audit",
            "failed",
            "failed:at",
            f"failed:print:{'f'}",
            "failed:prints",
            f"failed:queue:{QUEUE}",
        ]
        assert await without_ttl(adapter) == sorted(kept)
        assert await failed.forget(c.id)
        assert await without_ttl(adapter) == ["audit"]

    async def test_history_is_capped_by_number_and_by_age(self, redis_url: str) -> None:
        settings = DriverSettings(
            prefix=f"t{uuid.uuid4().hex[:12]}", testing=True, history_limit=10, history_ttl=100
        )
        async with opened(RedisAdapter.from_url(redis_url, settings)) as adapter:
            history = adapter.stores.history
            assert history is not None
            for n in range(5):
                rows = [
                    HistoryRow(id=f"{n}-{i}", queue=QUEUE, name="n", state="done", attempt=1)
                    for i in range(6)
                ]
                await history.push(rows)
            page, cursor = await history.page(limit=50)
            assert [row.id for row in page] == [f"4-{i}" for i in range(5, -1, -1)] + [
                f"3-{i}" for i in range(5, 1, -1)
            ]
            assert cursor == ""
            assert await adapter.link.command("HLEN", adapter.link.key("history")) == 10
            await adapter.advance(60)
            await history.push([HistoryRow(id="new", queue=QUEUE, name="n", state="done", attempt=1)])
            await adapter.advance(60)
            assert [row.id for row in (await history.page())[0]] == ["new"]
            await history.push([HistoryRow(id="last", queue=QUEUE, name="n", state="done", attempt=1)])
            assert await adapter.link.command("HLEN", adapter.link.key("history")) == 2
            await adapter.advance(101)
            assert await without_ttl(adapter) == ["skew"]
            await adapter.link.command("DEL", adapter.link.key("skew"))

    async def test_workers_leave_their_totals(self, env: RedisEnv) -> None:
        workers = env.adapter.stores.workers
        assert workers is not None
        report = WorkerReport(
            id="w",
            host="h",
            pid=1,
            queues=(QUEUE,),
            concurrency=1,
            started_at=0.0,
            counters={QUEUE: {"processed": 3}},
        )
        await workers.report(report)
        await workers.report(report)
        await workers.leave("w")
        assert await keys(env.adapter) == ["workers:totals"]
        assert await workers.totals() == {QUEUE: {"processed": 3}}


async def test_a_small_queued_job_takes_at_most_300_bytes(tmp_path: Path) -> None:
    """On a server of its own, where nothing else moves."""
    async with redis_server(tmp_path) as port, redis_env(f"redis://127.0.0.1:{port}/0", testing=False) as env:
        await env.adapter.push([job()])
        client, count = env.adapter.link.client, 20_000
        before = (await client.info("memory"))["used_memory"]
        for _ in range(count // 1000):
            await env.adapter.push([job() for _ in range(1000)])
        each = ((await client.info("memory"))["used_memory"] - before) / count
        assert 100 < each <= 300


class TestSlots:
    """One slot a namespace: a cluster needs nothing else."""

    @pytest.mark.parametrize("queue", ["a", "a.b", "a-b", "A" * 64])
    def test_every_key_has_the_slot_of_its_namespace(self, queue: str) -> None:
        link = Link(RedisOptions(url="redis://h"), "{jobs}:", testing=False)
        kinds = set(
            re.findall(r"root \.\. '([a-z:]*)'", "".join(path.read_text() for path in LUA.rglob("*.lua")))
        )
        assert {"jobs", "ready:", "leased:", "bell:", "result:", "failed:queue:"} <= kinds
        slots = {
            key_slot(link.key(kind + name).encode())
            for kind in kinds
            for name in (queue, "a:b", "we}ird", "été")
        }
        assert slots == {key_slot(b"jobs")}

    @pytest.mark.parametrize("name", names())
    def test_scripts_take_one_key_and_are_constant(self, name: str) -> None:
        text = script(name).text.decode()
        assert set(re.findall(r"KEYS\[(\w+)\]", re.sub(r"--.*", "", text))) == {"1"}
        header = (LUA / f"{name}.lua").read_text().split("\n\n")[0]
        for word in ("uses", "KEYS[1]  root", "ARGV     1 testing", "returns"):
            assert word in header

    def test_what_makes_room_may_run_on_a_full_server_and_push_may_not(self) -> None:
        first_lines = {
            name: script(name).text.split(b"\n", 1)[0] for name in ("claim", "settle", "extend", "push")
        }
        assert first_lines == {
            "claim": b"#!lua flags=allow-oom",
            "settle": b"#!lua flags=allow-oom",
            "extend": b"#!lua flags=allow-oom",
            "push": b"#!lua",
        }


class TestStoredForms:
    @pytest.mark.parametrize(
        "job_id",
        [
            "0198c0de-0000-7000-8000-0000000000ff",
            "0198C0DE-0000-7000-8000-0000000000FF",
            "0198c0de00007000800000000000000000ff",
            "0198c0de-0000-7000-8000-0000000000f ",
            "plain",
            "",
            "=odd",
            "été",
            "a" * 200,
        ],
    )
    def test_ids_come_back(self, job_id: str) -> None:
        assert unref(ref(job_id)) == job_id

    def test_a_uuid_is_stored_in_22_characters(self) -> None:
        refs = {ref(str(uuid.uuid4())) for _ in range(100)}
        assert {len(stored) for stored in refs} == {22}
        assert len(refs) == 100

    @pytest.mark.parametrize(
        "wire",
        [job(id="a").to_wire(), b'{"v":9,"id":"a","name":"n"}\n{}', b"", b"@", b"@@x", b"\x00\xff", b"{"],
    )
    def test_wire_forms_come_back(self, wire: bytes) -> None:
        assert restore(shorten(wire, "a"), "a") == wire

    def test_an_envelope_is_stored_without_its_id(self) -> None:
        assert b"0198c0de" not in shorten(job(id="0198c0de").to_wire(), "0198c0de")


async def test_ten_thousand_failures_are_paged_quickly(env: RedisEnv) -> None:
    failed = env.adapter.stores.failed
    assert failed is not None
    text = b'{"queue":"default","name":"n","error":"e","kind":"K","fingerprint":"f%d"}\n{}'
    for first in range(0, 10_000, 1000):
        async with env.adapter.link.client.pipeline(transaction=False) as pipeline:
            for n in range(first, first + 1000):
                args = (1, env.adapter.link.key(""), "1", f"={n}", text % (n % 7))
                pipeline.eval(script("failed_keep").text, *args)
            await pipeline.execute()
    begin = time.perf_counter()
    page, cursor = await failed.page(limit=50)
    assert time.perf_counter() - begin < 0.05
    assert ([record.id for record in page], bool(cursor)) == ([str(n) for n in range(9999, 9949, -1)], True)
    assert await failed.count() == 10_000
    groups = await failed.groups()
    assert sum(group.count for group in groups) == 10_000
    assert len(groups) == 7
    assert await failed.forget_all() == 10_000
    assert await failed.count() == 0


async def test_the_doctor(tmp_path: Path) -> None:
    flags = ("--maxmemory-policy", "allkeys-lru")
    async with (
        redis_server(tmp_path, *flags) as port,
        redis_env(f"redis://127.0.0.1:{port}/0", testing=False) as env,
    ):
        findings = {finding.text: finding.level for finding in await env.adapter.doctor()}
        assert [level for text, level in findings.items() if "allkeys-lru" in text] == ["error"]
        assert [level for text, level in findings.items() if text.startswith("appendonly is off")] == [
            "warning"
        ]
        assert [level for text, level in findings.items() if "clock" in text] == ["ok"]
        assert any(text.startswith("Redis ") for text in findings)
        await env.adapter.link.client.config_set("maxmemory-policy", "noeviction")
        await env.adapter.link.client.config_set("appendonly", "yes")
        levels = [finding.level for finding in await env.adapter.doctor()]
        assert "error" not in levels
