"""A chaos run: real workers on a real store, under kills, freezes and cut links; then everything is checked.

    python -m tests.faults.chaos --driver NAME [--jobs N] [--kills N] [--freezes N] [--server-kills N] [--cuts N]
                                 [--seed N] [--lease S] [--workers N] [--keep]

Exit codes: 0 nothing is wrong; 1 something is; 2 the run is void, since too few faults have hit.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from nimbusq import Manager, StoreError
from nimbusq.testing.audit import AuditEvent
from tests.drivers.proxy import Proxy, proxied
from tests.faults.nemesis import PACE, Nemesis
from tests.faults.producer import Producer
from tests.faults.report import Plan, Report, figures, missing
from tests.faults.servers import BACKENDS, CARRIERS, DRIVERS, Server
from tests.faults.stage import Stage, staged
from tests.faults.verdict import Evidence, violations
from tests.faults.workload import QUEUE

APP = Path(__file__).with_name("workload.py")
BACKLOG: Final = 1_500
"""Jobs that may wait in the store before the producer rests."""
LEAD: Final = 0.1
"""Share of the jobs by which the producer may be ahead of the nemesis."""
SLOW: Final = (1.0, 3.0)
"""Seconds between two strikes where a worker takes a while to join the others."""
DRAINED_WITHIN: Final = 90.0
"""Seconds in which everything must have ended once nothing goes wrong any more."""


async def run(plan: Plan, folder: Path) -> Report:
    """One run in `folder`, which must be empty."""
    report = Report(plan)
    async with scene_of(plan, folder) as scene:
        stage = scene.stage
        begun_at = time.monotonic()
        nemesis = Nemesis(
            stage,
            least=plan.least,
            seed=plan.seed,
            lease=plan.lease,
            server=scene.server,
            links=scene.links,
            pace=scene.pace,
        )
        async with AsyncExitStack() as managers:
            direct = await managers.enter_async_context(stage.manager())
            sender = await managers.enter_async_context(sender_of(scene))
            producer = Producer(sender, jobs=plan.jobs, seed=plan.seed, lease=plan.lease)
            stage.start(QUEUE, nursery=plan.workers, concurrency=plan.concurrency, lease=plan.lease)
            await stage.until(lambda: len(stage.workers()) == plan.workers, "the workers' start")
            async with asyncio.TaskGroup() as group:
                group.create_task(nemesis.run())
                group.create_task(produce(producer, nemesis, direct))
            healed_at = time.monotonic()
            drained = await drains(stage, direct)
            drained_at = time.monotonic()
            evidence = await collect(stage, direct, producer)
    report.struck = nemesis.struck
    report.violations = [*drained, *violations(evidence)]
    report.seen = figures(evidence, begun_at, healed_at, drained_at)
    report.seen["replies lost"] = sum(link.lost for link in scene.links)
    report.void = missing(report, has_server=scene.server is not None)
    report.keep_in(folder)
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """links: the workers' and the sender's ways to the server; none where there is no server."""

    stage: Stage
    server: Server | None = None
    links: Sequence[Proxy] = ()
    sender_url: str
    pace: tuple[float, float] = PACE


@asynccontextmanager
async def scene_of(plan: Plan, folder: Path) -> AsyncIterator[Scene]:
    """The stage, and the server behind its links where the driver has one."""
    async with AsyncExitStack() as stack:
        if plan.driver in CARRIERS:
            server = Server(CARRIERS[plan.driver], folder)
            stack.push_async_callback(server.stop)
            await server.start()
            every_end = {"NIMBUSQ_HISTORY_LIMIT": str(10 * plan.jobs)}
            stack.enter_context(patch.dict(os.environ, server.exports | every_end))
            url = f"kafka://{server.url}" if plan.driver == "kafka" else "sqs://us-east-1"
            carrier = Stage(url, folder, APP, store=f"sqlite:///{folder / 'store.db'}")
            stage = await stack.enter_async_context(staged(carrier, QUEUE))
            yield Scene(stage=stage, sender_url=url, pace=SLOW)
            return
        if plan.driver not in BACKENDS:
            url = f"sqlite:///{folder / 'jobs.db'}"
            stage = await stack.enter_async_context(staged(Stage(url, folder, APP), QUEUE))
            yield Scene(stage=stage, sender_url=url)
            return
        server = Server(BACKENDS[plan.driver], folder)
        stack.push_async_callback(server.stop)
        await server.start()
        links = [await stack.enter_async_context(proxied(*server.address)) for _ in range(2)]
        workers, sender = (server.url_at(*link.address) for link in links)
        stage = await stack.enter_async_context(staged(Stage(server.url, folder, APP, workers), QUEUE))
        yield Scene(stage=stage, server=server, links=links, sender_url=sender)


@asynccontextmanager
async def sender_of(scene: Scene) -> AsyncIterator[Manager]:
    """The manager of the producer, on a network as bad as the workers'."""
    stage = scene.stage
    sender = Stage(scene.sender_url, stage.folder, stage.app, prefix=stage.prefix, store=stage.store)
    async with sender.manager() as manager:
        yield manager


async def produce(producer: Producer, nemesis: Nemesis, direct: Manager) -> None:
    """Send as fast as the workers and the nemesis follow."""
    looked_at = 0

    async def may_go_on() -> None:
        nonlocal looked_at
        while producer.progress > nemesis.progress + LEAD:
            await asyncio.sleep(0.05)
        if producer.count - looked_at > BACKLOG // 5:
            looked_at = producer.count
            while await backlog(direct) > BACKLOG:
                await asyncio.sleep(0.1)

    await producer.run(may_go_on)


async def drains(stage: Stage, direct: Manager) -> list[str]:
    """L1: with live workers and nothing in their way everything ends; then they stop in good order."""
    try:
        await stage.until_empty(direct, QUEUE, within=DRAINED_WITHIN)
        for process in stage.processes:
            await stage.stopped(process)
    except AssertionError as error:
        stage.end()
        return [f"L1: {error}"]
    return []


async def backlog(direct: Manager) -> int:
    """0 while the server is away: the producer's own send will tell."""
    try:
        return (await direct.depth(QUEUE)).pending or 0
    except StoreError:
        return 0


async def collect(stage: Stage, direct: Manager, producer: Producer) -> Evidence:
    """Read everything, once nobody works any more."""
    adapter: Any = direct.store or direct.adapter
    batches = direct.require("batches", "batches")
    jobs = direct.require("jobs", "jobs")
    left, _ = await jobs.list(limit=50)
    return Evidence(
        events=[AuditEvent.of(row) for row in await adapter.audit()],
        ledger=stage.ledger,
        sent=producer.sent,
        batches={batch_id: await batches.find(batch_id) for batch_id in producer.sent.batches},
        left=[view.id for view in left],
        recorded=await recorded(direct) if direct.store else {},
    )


async def recorded(direct: Manager) -> dict[str, str]:
    """How the jobs ended that the history knows."""
    history = direct.require("history", "history")
    ends: dict[str, str] = {}
    cursor: str | None = None
    while cursor != "":
        rows, cursor = await history.page(limit=1_000, cursor=cursor or "")
        ends |= {row.id: row.state for row in rows}
    return ends


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--driver", choices=DRIVERS, required=True)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50, help="of workers; other faults follow from it")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of workload and schedule")
    parser.add_argument("--lease", type=float, default=2.0, help="seconds")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--freezes", type=int, default=0, help="past the lease, at least")
    parser.add_argument("--server-kills", type=int, default=0, help="at least")
    parser.add_argument("--cuts", type=int, default=0, help="of connections, at least")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a good run too")
    args = vars(parser.parse_args())
    keep = args.pop("keep")
    plan = Plan(**args)
    folder = Path(tempfile.mkdtemp(prefix=f"nimbusq-chaos-{plan.driver}-"))
    folder.chmod(0o755)  # a server that is not root must get through
    print(f"{plan}\nin {folder}", flush=True)  # noqa: T201  # a command
    report = asyncio.run(run(plan, folder))
    print(report.text())  # noqa: T201
    if report.code == 0 and not keep:
        shutil.rmtree(folder)
    return report.code


if __name__ == "__main__":
    sys.exit(main())
