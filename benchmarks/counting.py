"""benchmarks/counts: figures without noise, each with the limit that a change must not pass."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from benchmarks.catalogue import Driver
from benchmarks.counters import Asked, PostgresAsked, RedisAsked, SqliteAsked
from benchmarks.servers import Servers
from nimbusq import Job, Manager, Settings, Worker, dispatch, dispatch_many

JOBS: Final = 2000
SINGLE: Final = 100
WATCH: Final = 6.0
"""Seconds that a worker is watched for; it reports every five."""
LEASE: Final = 1.5
HELD: Final = 50
"""Jobs that run while renewals are counted."""
CLIENTS: Final = ("redis", "asyncpg", "aiosqlite", "aiomysql", "aioboto3", "botocore", "aiokafka", "uvloop")


class Nothing(Job):
    i: int

    async def handle(self) -> None: ...


class Held(Job):
    seconds: float

    async def handle(self) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class Count:
    """A figure and its limit; what it is made of stands in `detail`."""

    what: str
    value: float
    limit: float
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "TOO MUCH"
        return f"{verdict:9}{self.what}: {self.value:,.3g} (at most {self.limit:g})  {self.detail}".rstrip()


async def drain(asked: Asked, manager: Manager, concurrency: int, limit: float) -> Count:
    """What one job costs with a backlog, the worker's start and its last look included."""
    await dispatch_many([Nothing(i=i) for i in range(JOBS)])
    asked.reset()
    async with _working(manager, concurrency) as worker:
        await _until(lambda: worker.counters.get("default", {}).get("processed", 0) == JOBS)
        return _per(asked, f"asked per job of a backlog, at concurrency {concurrency}", JOBS, limit)


async def enqueue(asked: Asked, _: Manager) -> Count:
    """What one `send` costs."""
    await dispatch(Nothing(i=0)).send()  # may have to load a script
    asked.reset()
    for i in range(SINGLE):
        await dispatch(Nothing(i=i)).send()
    return _per(asked, "asked per single send", SINGLE, 1.0)


async def idle(asked: Asked, manager: Manager, limit: float) -> Count:
    """What a worker asks while there is nothing to do."""
    async with _working(manager, 10):
        await asyncio.sleep(1.0)
        asked.reset()
        await asyncio.sleep(WATCH)
        return _per(asked, "asked per second by an idle worker", WATCH, limit)


async def renewals(_: Asked, manager: Manager) -> Count:
    """How often the keeper calls, many jobs running."""
    kind, calls = type(manager.adapter), 0
    extend = kind.extend

    async def counted(self: Any, claims: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return await extend(self, claims, **options)

    with mock.patch.object(kind, "extend", counted):
        async with _working(manager, HELD, lease=LEASE) as worker:
            await dispatch_many([Held(seconds=WATCH - LEASE / 6)] * HELD)  # no third is begun for nothing
            await _until(lambda: worker.running == HELD)
            await _until(lambda: worker.running == 0)
    return Count(
        f"renewing calls per third of the lease, {HELD} jobs running", calls / (WATCH / (LEASE / 3)), 1.0
    )


async def left(asked: Asked, manager: Manager) -> Count:
    """What stays for ever of jobs that succeeded, with no result and no history kept."""
    await dispatch_many([Nothing(i=i) for i in range(JOBS)])
    async with _working(manager, 100) as worker:
        await _until(lambda: worker.counters.get("default", {}).get("processed", 0) == JOBS)
    found = asked.left()
    return Count(f"left behind by {JOBS:,} jobs", len(found), 0, ", ".join(found[:5]))


async def memory(asked: RedisAsked) -> Count:
    """What a queued job takes."""
    await dispatch_many([Nothing(i=i) for i in range(JOBS)])
    before = asked.memory()
    await dispatch_many([Nothing(i=i) for i in range(5 * JOBS)])
    return Count("bytes per queued job", (asked.memory() - before) / (5 * JOBS), 300)


def imports() -> list[Count]:
    """What `import nimbusq` brings with it, and how long it takes at best."""
    code = "import time; t = time.perf_counter(); import nimbusq, sys; print(time.perf_counter() - t, *sys.modules)"
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, text=True, capture_output=True)
        for _ in range(5)
    ]
    words = [run.stdout.split() for run in runs]
    clients = sorted(set(CLIENTS) & set(words[0][1:]))
    return [
        Count("clients imported by nimbusq", len(clients), 0, ", ".join(clients)),
        Count("ms of CPU to import nimbusq", min(float(each[0]) for each in words) * 1000, 150),
    ]


# --- parts of them ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def _working(
    manager: Manager, concurrency: int, *, lease: float | None = None
) -> AsyncIterator[Worker]:
    worker = Worker(manager, "default", concurrency=concurrency, lease=lease)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        yield worker
        worker.stop()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # a worker's counters are not an event
            await asyncio.sleep(0.005)


def _per(asked: Asked, what: str, n: float, limit: float) -> Count:
    calls = asked.calls()
    detail = ", ".join(f"{name} x {count}" for name, count in calls.most_common(8))
    return Count(what, calls.total() / n, limit, f"[{detail}]")


# --- all of a driver -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """at_10, at_100: asked per job of a backlog. idle: asked per second."""

    at_10: float
    at_100: float
    idle: float


LIMITS: Final[dict[Driver, Limits]] = {
    "redis": Limits(at_10=0.3, at_100=0.3, idle=1.0),
    "postgres": Limits(at_10=0.3, at_100=0.05, idle=1.5),
    "sqlite": Limits(at_10=0.3, at_100=0.3, idle=float("inf")),
}
ASKED: Final[dict[Driver, type[RedisAsked | PostgresAsked | SqliteAsked]]] = {
    "redis": RedisAsked,
    "postgres": PostgresAsked,
    "sqlite": SqliteAsked,
}


async def count(driver: Driver, servers: Servers) -> AsyncIterator[Count]:
    """Every figure of a driver, each from a fresh place."""
    limits = LIMITS[driver]
    figures: list[Callable[[Asked, Manager], Awaitable[Count]]] = [
        partial(drain, concurrency=10, limit=limits.at_10),
        partial(drain, concurrency=100, limit=limits.at_100),
        enqueue,
        partial(idle, limit=limits.idle),
        renewals,
    ]
    for figure in figures:
        async with _fresh(driver, servers) as (asked, manager):
            yield await figure(asked, manager)
    async with _fresh(driver, servers, history_limit=0) as (asked, manager):
        yield await left(asked, manager)
    if driver == "redis":
        async with _fresh(driver, servers) as (asked, manager):
            assert isinstance(asked, RedisAsked)
            yield await memory(asked)


@asynccontextmanager
async def _fresh(driver: Driver, servers: Servers, **settings: Any) -> AsyncIterator[tuple[Asked, Manager]]:
    place = servers.fresh(driver)
    asked = ASKED[driver](place)
    with asked.watching():
        manager = Manager(place.url, settings=Settings(**settings))
        await manager.adapter.setup(["default"])
        async with manager:
            yield asked, manager


async def _main(drivers: Sequence[Driver]) -> int:
    counts = imports()
    print(*counts, sep="\n")
    with tempfile.TemporaryDirectory(prefix="nimbusq-counts-") as folder, Servers(Path(folder)) as servers:
        servers.start(drivers)
        if "postgres" in drivers:
            servers.restart_with_statistics()
        for driver in drivers:
            print(f"\n{driver}", flush=True)
            async for counted in count(driver, servers):
                print(counted, flush=True)
                counts.append(counted)
    return int(not all(counted.ok for counted in counts))


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/counts", description=__doc__)
    parser.add_argument("drivers", nargs="*", choices=[*LIMITS, []], help="default: all of them")
    given = parser.parse_args()
    return asyncio.run(_main(given.drivers or list(LIMITS)))


if __name__ == "__main__":
    sys.exit(main())
