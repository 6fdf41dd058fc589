"""benchmarks/claims: the time of single claims on PostgreSQL, what they reach without a worker, and deadlocks."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg

from benchmarks.servers import Servers
from nimbusq.driver import (
    BatchRecord,
    Claim,
    Done,
    DriverSettings,
    HistoryRow,
    Lane,
    NewBatch,
    Settlement,
    Want,
)
from nimbusq.envelope import Envelope, Overlap, Unique
from nimbusq.ids import new_id
from nimbusq_database import DatabaseAdapter, ends
from nimbusq_database.fronts import Fronts
from nimbusq_database.postgres.address import PostgresAddress
from nimbusq_database.postgres.client import PostgresClient
from nimbusq_database.postgres.dialect import PostgresDialect
from nimbusq_database.postgres.pool import connect
from nimbusq_database.statements import Statements
from nimbusq_database.transaction import Transaction

FEW: Final = 1000
MANY: Final = 200_000
TIMED: Final = 500
"""Claims whose times are taken at each depth."""
AT_ONCE: Final = 10
"""Jobs of one claim."""
SIZES: Final = (1, 5, 10)
"""Jobs of a call without a worker."""
WORKERS: Final = 4
SHARES: Final = {"unique": 0.4, "overlap": 0.05, "batch": 0.4, "lost": 0.15}
"""Of the jobs of the run that counts deadlocks."""


def envelope(**options: object) -> Envelope:
    return Envelope(id=new_id(), name="Noop", queue="q", **options)  # type: ignore[arg-type]  # as they are named


async def claim(adapter: DatabaseAdapter, *, lease: float = 60.0, wait: float = 0.0) -> list[Claim]:
    lanes = (Lane(queue="q", limit=AT_ONCE),)
    want = Want(token=new_id(), limit=AT_ONCE, lease=lease, wait=wait, lanes=lanes)
    return list((await adapter.claim(want)).claims)


def settlement(one: Claim) -> Settlement:
    assert isinstance(one.envelope, Envelope), "nothing else was pushed"
    batch = one.envelope.batch_id
    return Settlement(
        claim=one,
        outcome=Done(),
        record=BatchRecord(batch_id=batch, member=one.id, failed=False) if batch else None,
        history=HistoryRow(id=one.id, queue=one.queue, name="Noop", state="done", attempt=1),
    )


async def push(adapter: DatabaseAdapter, envelopes: Sequence[Envelope]) -> None:
    for first in range(0, len(envelopes), 1000):
        await adapter.push(envelopes[first : first + 1000])


async def turns(adapter: DatabaseAdapter, count: int) -> list[float]:
    """Claim, settle and push as many again, so that the depth stays; the seconds of each claim."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        claims = await claim(adapter)
        times.append(time.perf_counter() - began)
        await adapter.settle([settlement(one) for one in claims])
        await adapter.push([envelope() for _ in claims])
    return times


def p95(times: Sequence[float]) -> float:
    """In milliseconds."""
    return statistics.quantiles(times, n=20)[-1] * 1000


@asynccontextmanager
async def opened(url: str, prefix: str = "c") -> AsyncIterator[DatabaseAdapter]:
    adapter = DatabaseAdapter.from_url(url, DriverSettings(prefix=prefix))
    await adapter.setup([])
    await adapter.open()
    try:
        yield adapter
    finally:
        await adapter.aclose()


async def by_depth(url: str) -> None:
    """The two depths take turns, so that what else the machine does falls on both."""
    few, many = list[float](), list[float]()
    async with opened(url, "few") as shallow, opened(url, "many") as deep:
        await push(shallow, [envelope() for _ in range(FEW)])
        await push(deep, [envelope() for _ in range(MANY)])
        for _ in range(TIMED // 50):
            few += await turns(shallow, 50)
            many += await turns(deep, 50)
    report(f"claim p95, {MANY:,} waiting ÷ {FEW:,}", p95(few), p95(many), limit=2.0)


async def beside_a_snapshot(url: str, jobs: int) -> None:
    """While a transaction is open no dead row can be removed, and claims must step over all of them."""
    async with opened(url) as adapter:
        await push(adapter, [envelope() for _ in range(FEW)])
        await turns(adapter, 50)
        holder = await asyncpg.connect(url)
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetch("select 1")
            times = await turns(adapter, jobs // AT_ONCE)
        await holder.close()
    tenth = max(len(times) // 10, 2)
    what = f"claim p95, last tenth ÷ first of {jobs:,} jobs beside an open transaction"
    report(what, p95(times[:tenth]), p95(times[-tenth:]), limit=5.0)


async def without_a_worker(url: str, jobs: int, size: int) -> None:
    """The most that a worker of so many slots could reach: one statement after the other settles as many jobs and
    claims the next, and nothing is done with them."""
    statements = Statements("postgres", f"bare{size}", PostgresDialect.spelling)
    lanes, fronts = (Lane(queue="q", limit=size),), Fronts()
    async with opened(url, f"bare{size}") as adapter:
        await push(adapter, [envelope() for _ in range(jobs)])
    connection = await connect(PostgresAddress.from_url(url))
    tx = Transaction(PostgresClient(connection), statements, audited=False)
    claims, settled = list[Claim](), 0
    began = time.perf_counter()
    while settled < jobs:
        want = Want(token=new_id(), limit=size, lease=60.0, lanes=lanes)
        _, look = await ends.end_and_claim(tx, [settlement(one) for one in claims], want, fronts)
        settled += len(claims)
        claims = list(look.claimed.claims) if look is not None else []  # None: nothing is left
        assert claims or settled == jobs, "none of these jobs needs to be judged"
    seconds = time.perf_counter() - began
    await connection.close()
    print(
        f"settled and claimed {size} by {size}, without a worker: {jobs / seconds:,.0f} jobs/s, "
        f"{seconds / jobs * size * 1000:.2f} ms a call",
        flush=True,
    )


async def deadlocks(url: str, jobs: int) -> None:
    """Unique and overlapping jobs, one batch row, renewals, lost leases, and pruning with every settlement."""
    counts = {name: int(jobs * share) for name, share in SHARES.items()}
    finished, seen = 0, set[str]()

    async def work() -> None:
        nonlocal finished
        async with opened(url) as mine:
            while finished < sum(counts.values()):
                claims = await claim(mine, wait=0.2, lease=0.2 if len(seen) < counts["lost"] else 60.0)
                if len(seen) < counts["lost"]:
                    seen.update(one.id for one in claims)
                    continue  # nobody renews or settles them: they are reclaimed
                await mine.extend(list(reversed(claims)), lease=60.0)
                settled = await mine.settle([settlement(one) for one in claims])
                finished += sum(one.status.value == "settled" for one in settled)
                mine._pruning.next_at = 0.1

    async with opened(url) as adapter:
        assert adapter.stores.batches
        await push(adapter, [envelope(unique=Unique(key=str(n))) for n in range(counts["unique"])])
        keys = (str(n % 17) for n in range(counts["overlap"]))
        await push(adapter, [envelope(overlap=Overlap(key=key, release_after=0.1)) for key in keys])
        await push(adapter, [envelope() for _ in range(counts["lost"])])
        await adapter.stores.batches.create(NewBatch(id="b"))
        for first in range(0, counts["batch"], 1000):
            members = [envelope(batch_id="b") for _ in range(min(1000, counts["batch"] - first))]
            await adapter.stores.batches.add("b", members, offset=first)
        await adapter.stores.batches.seal("b")
    async with asyncio.TaskGroup() as workers:
        for _ in range(WORKERS):
            workers.create_task(work())
    server = await asyncpg.connect(url)
    name = urlsplit(url).path.removeprefix("/")
    found = await server.fetchval("select deadlocks from pg_stat_database where datname = $1", name)
    await server.close()
    print(f"deadlocks over {finished:,} jobs: {found} (at most 0)", flush=True)


def report(what: str, before: float, after: float, *, limit: float) -> None:
    ratio = after / before
    verdict = "met" if ratio <= limit else "missed"
    print(
        f"{what}: {after:.2f} ms ÷ {before:.2f} ms = {ratio:.2f} (at most {limit:g}: {verdict})", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/claims", description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=20_000, help="of the runs beside a snapshot and for deadlocks"
    )
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="nimbusq-bench-") as folder, Servers(Path(folder)) as servers:
        servers.start(["postgres"])
        asyncio.run(by_depth(servers.fresh("postgres").url))
        asyncio.run(beside_a_snapshot(servers.fresh("postgres").url, jobs))
        for size in SIZES:
            asyncio.run(without_a_worker(servers.fresh("postgres").url, jobs * size // max(SIZES), size))
        asyncio.run(deadlocks(servers.fresh("postgres").url, jobs))


if __name__ == "__main__":
    main()
