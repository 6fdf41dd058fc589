"""``nimbusq demo``: a queue at work, with no server, so that there is something to look at."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nimbusq.cli.session import UrlOption, run

if TYPE_CHECKING:
    from nimbusq.manager import Manager


def demo(
    url: UrlOption = None,
    rate: Annotated[float, typer.Option(min=0.1, max=10_000, help="Jobs a second.")] = 20,
    fail: Annotated[float, typer.Option(min=0, max=100, help="Per cent of the runs that fail.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long.")] = 5,
) -> None:
    """Send sample jobs for a while and run them here: on an SQLite file in a temporary folder, or on --url."""

    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="nimbusq-demo-") as folder:
            await _play(url or f"sqlite:///{Path(folder) / 'demo.db'}", rate, fail, seconds)

    run(main)


async def _play(url: str, rate: float, fail: float, seconds: float) -> None:
    from nimbusq import Batch, BatchState, Manager, Worker, dispatch, job

    @job(name="demo.resize", queue="demo", retries=2, backoff=0.2)
    async def resize(image: int) -> str:
        await asyncio.sleep(random.uniform(0.01, 0.15))  # noqa: S311  # a pretended workload
        if random.uniform(0, 100) < fail:  # noqa: S311
            raise RuntimeError(f"image {image} is broken")
        return f"image-{image}.webp"

    @job(name="demo.album", queue="demo")
    async def album(batch: BatchState) -> None:
        typer.echo(f"  album {batch.name}: {batch.total} images, {batch.failed} broken for good")

    async with Manager(url) as manager:
        worker = Worker(manager, "demo", concurrency=20, grace=10)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())
            typer.echo(
                f"demo on {manager.adapter.capabilities.driver}: {rate:g} jobs a second for {seconds:g} s"
            )
            loop = asyncio.get_running_loop()
            until, sent = loop.time() + seconds, 0
            while loop.time() < until:
                members = [dispatch(resize, sent + n) for n in range(max(1, round(rate)))]
                await Batch(members).named(f"album-{sent}").finally_(album).send()
                sent += len(members)
                await asyncio.sleep(min(1.0, max(0.0, until - loop.time())))
            await _until_empty(manager)
            worker.stop()
            await running
        counts = worker.counters.get("demo", {})
        typer.echo(
            f"{sent} images sent: {counts.get('processed', 0)} jobs done, {counts.get('retried', 0)} retries, "
            f"{counts.get('failed', 0)} failed for good"
        )


async def _until_empty(manager: Manager) -> None:
    depth = await manager.depth("demo")
    if depth.pending or depth.running or depth.delayed:
        await asyncio.sleep(0.1)
        await _until_empty(manager)
