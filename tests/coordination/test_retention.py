"""Nothing grows for ever: what has ended leaves the store, by time or by number (B37)."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from nimbusq import Batch, Chain, Manager, Scheduler, Worker, dispatch, dispatch_many, job
from nimbusq.batch import find_batch
from nimbusq.driver import WorkerReport
from nimbusq.envelope import Rate
from nimbusq.errors import BatchNotFound
from nimbusq.ids import derived_id
from tests.coordination.place import Advance, Place, workers
from tests.coordination.programs import shop
from tests.drivers import redis_env

DAY = 86_400.0


@pytest.fixture(autouse=True)
def prunes_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database driver prunes once a minute, by the clock of the machine."""
    monkeypatch.setattr("nimbusq_database.pruning._EVERY", 0.0)


async def drained(here: Place, manager: Manager, **options: Any) -> None:
    async with workers(Worker(manager, lease=5, concurrency=20, **options)):
        await here.until_empty(manager)


async def test_after_eight_days_only_live_jobs_and_failures_are_left(shared: Place) -> None:
    """Results, locks, batches, ticks, rates, overlap keys, history, tombstones and workers' reports have gone."""
    async with shared.time_machine() as (manager, advance):
        await a_bit_of_everything(shared, manager, scale=1)
        await everything_ends(shared, manager, advance)
        before = await weight(shared, manager)
        await a_bit_of_everything(shared, manager, scale=30)
        assert await weight(shared, manager) > before + 300
        await everything_ends(shared, manager, advance)
        assert await weight(shared, manager) <= before + 10


async def a_bit_of_everything(here: Place, manager: Manager, *, scale: int) -> None:
    @job
    async def value(n: int) -> int:
        return n

    jobs = [dispatch(value, n) for n in range(10 * scale)]
    jobs += [dispatch(shop.step, f"s{n}").unique(f"k{n}") for n in range(2 * scale)]
    jobs += [dispatch(shop.step, f"u{n}").unique_for(3600, key=f"k{n}") for n in range(2 * scale)]
    jobs += [dispatch(shop.step, f"o{n}").without_overlapping(f"k{n}") for n in range(scale)]
    jobs += [dispatch(shop.step, f"r{n}").rate_limit(f"k{n}", 100, 10) for n in range(scale)]
    jobs += [dispatch(shop.broken, f"b{n}") for n in range(scale)]
    await dispatch_many(jobs)
    for n in range(scale):
        members = [
            dispatch(shop.step, f"m{n}"),
            dispatch(shop.broken, f"m{n}"),
            Chain(dispatch(shop.step, f"c{n}")),
        ]
        await Batch(members).finally_(shop.on_finally).send()
        await manager.require("locker", "").acquire(f"by hand {n}", 60)
        await manager.require("limiter", "").reserve(Rate(key=f"by hand {n}", per_second=1))
        report = WorkerReport(id=f"w{n}", host="h", pid=n, queues=("q",), concurrency=1, started_at=0.0)
        await manager.require("workers", "").report(report)
    scheduler = Scheduler(manager)
    entry = scheduler.every(60, dispatch(shop.step, "tick"))
    await manager.require("schedules", "").register(entry.name, entry.spec())
    now = await manager.require("schedules", "").now()
    for n in range(2 * scale):
        await scheduler.fire(entry, now + 60 + n)
    await drained(here, manager)


async def everything_ends(here: Place, manager: Manager, advance: Advance) -> None:
    await advance(8 * DAY)
    await manager.require("failed", "").forget_all()
    for n in range(6):  # it is pruned in passing
        await dispatch(shop.step, f"later{n}").send()
        await drained(here, manager)


async def weight(here: Place, manager: Manager) -> int:
    """How many things the store holds: rows, or members of keys."""
    if here.url.startswith("redis"):
        return await weight_of_redis(manager.adapter)
    return sum((await rows_of(here)).values())


async def weight_of_redis(adapter: Any) -> int:
    sizes = {b"hash": "HLEN", b"zset": "ZCARD", b"set": "SCARD", b"list": "LLEN", b"stream": "XLEN"}
    total = 0
    for name in await redis_env.keys(adapter):
        if name == "audit":
            continue
        key = adapter.link.key(name)
        kind = await adapter.link.command("TYPE", key)
        total += await adapter.link.command(sizes[kind], key) if kind in sizes else 1
    return total


async def rows_of(here: Place) -> dict[str, int]:
    query = {"sqlite": sqlite_query, "postgresql": postgres_query, "mysql": mysql_query}[
        urlsplit(here.url).scheme
    ]
    tables = {
        "sqlite": "select name from sqlite_master where type = 'table'",
        "postgresql": "select tablename from pg_tables",
        "mysql": "select table_name from information_schema.tables",
    }[urlsplit(here.url).scheme]
    names = [name for (name,) in await query(here, tables) if here.prefix in name and "audit" not in name]
    assert len(names) > 8
    return {name: (await query(here, f"select count(*) from {name}"))[0][0] for name in names}


Query = Callable[[Place, str], Awaitable[list[tuple[Any, ...]]]]


async def sqlite_query(here: Place, text: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(here.folder / "jobs.db")
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


async def postgres_query(here: Place, text: str) -> list[tuple[Any, ...]]:
    import asyncpg

    connection = await asyncpg.connect(here.url)
    try:
        return [tuple(row) for row in await connection.fetch(text)]
    finally:
        await connection.close()


async def mysql_query(here: Place, text: str) -> list[tuple[Any, ...]]:
    import aiomysql

    parts = urlsplit(here.url)
    connection = await aiomysql.connect(
        host=parts.hostname,
        port=parts.port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        db=parts.path.strip("/"),
    )
    try:
        async with connection.cursor() as cursor:
            await cursor.execute(text)
            return list(await cursor.fetchall())
    finally:
        connection.close()


# --- each rule by itself -------------------------------------------------------------------------------------------


async def test_the_history_is_capped(here: Place) -> None:
    async with here.manager(history_limit=50) as manager:
        for _ in range(3):
            await dispatch_many([dispatch(shop.step, f"j{n}") for n in range(50)])
            await drained(here, manager)
        await dispatch(shop.step, "last").send()
        await drained(here, manager)
        rows, _ = await manager.require("history", "").page(limit=200)
        assert len(rows) <= 51
        assert rows[0].name == "step"


async def test_the_history_is_kept_for_a_day_and_ten_thousand_rows_by_default(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        assert (manager.settings.history_limit, manager.settings.history_ttl) == (10_000, DAY)
        await dispatch(shop.step, "x").send()
        await drained(here, manager)
        await advance(DAY - 60)
        assert len((await manager.require("history", "").page())[0]) == 1
        await advance(120)
        assert (await manager.require("history", "").page())[0] == []


async def test_a_batch_is_kept_for_a_week_after_its_last_progress(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        batch = await Batch([dispatch(shop.step, "m").delay(n * 6 * DAY) for n in range(3)]).send()
        for done in (1, 2, 3):
            await drained_of_due(here, manager)
            assert (await find_batch(batch.id)).state.processed == done
            await advance(6 * DAY)
        assert (await find_batch(batch.id)).state.finished
        await advance(DAY + 60)
        with pytest.raises(BatchNotFound, match="unknown or has expired"):
            await batch.refresh()


async def drained_of_due(here: Place, manager: Manager) -> None:
    """What is due has run; what is delayed waits."""
    async with workers(Worker(manager, lease=5)):
        count = len(here.notes("end"))
        await here.until(lambda: len(here.notes("end")) > count, "a run", 10)
        await here.until_idle(manager)


async def test_a_retried_member_of_a_forgotten_batch_still_runs(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        batch = await Batch([dispatch(shop.broken, "m")]).send()
        await drained(here, manager)
        await advance(8 * DAY)
        await manager.require("failed", "").retry(derived_id(batch.id, 0))
        await drained(here, manager)
        assert here.counts("start") == {"m": 2}
        assert await manager.require("failed", "").count() == 1
