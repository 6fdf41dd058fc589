"""A worker process of the Kafka tests: it runs the jobs below and writes a line for everything that happens.

    python kafka_worker.py QUEUE CONCURRENCY [OPTIONS-AS-JSON]

The broker, the prefix and the file come from KAFKA_BROKERS, NIMBUSQ_PREFIX and KAFKA_EVENTS. SIGTERM ends it in
good order.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nimbusq import BatchState, Job, Manager, Observer, Settings, Worker, current_job, job
from nimbusq.driver import Claim, Lost


def note(event: str, job_id: str = "", **details: Any) -> None:
    """One line, appended in one step, so that any number of processes may write."""
    line = json.dumps({"event": event, "id": job_id, "at": time.time(), "pid": os.getpid(), **details})
    with Path(os.environ["KAFKA_EVENTS"]).open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


@job(queue="work", retries=30)
async def sleep_for(seconds: float) -> None:
    me = current_job()
    note("start", me.id, attempt=me.attempt)
    await asyncio.sleep(seconds)
    note("ran", me.id)


@job(queue="work", retries=30)
async def block_for(seconds: float) -> None:
    """Blocks the event loop, as a careless handler does."""
    me = current_job()
    note("start", me.id, attempt=me.attempt)
    time.sleep(seconds)  # noqa: ASYNC251 - what this job is for
    note("ran", me.id)


class AlwaysFails(Job, queue="work", retries=2, backoff=[1.0, 1.0]):
    async def handle(self) -> None:
        note("start", current_job().id, attempt=current_job().attempt)
        raise ValueError("as always")

    async def failed(self, error: Exception) -> None:
        note("hook", kind=type(error).__name__)


class KillsItsWorker(Job, queue="work", retries=2):
    async def handle(self) -> None:
        note("start", current_job().id, attempt=current_job().attempt)
        os.kill(os.getpid(), signal.SIGKILL)


@job(queue="work", retries=30)
async def tell_batch(batch: BatchState) -> None:
    note("batch", batch.id, total=batch.total, pending=batch.pending, failed=batch.failed)


class Telling(Observer):
    """Notes what the driver has answered."""

    def processed(self, claim: Claim, duration: float, error: str | None) -> None:
        note("done" if error is None else "failed", claim.id, error=error)

    def lease_lost(self, claim: Claim) -> None:
        note("refused", claim.id)

    def reclaimed(self, lost: Sequence[Lost]) -> None:
        for one in lost:
            note("lost", one.id, attempt=one.attempt)


class Rebalances(logging.Handler):
    """Notes each time that this member joins the group, which aiokafka tells its log only."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Joined group"):
            note("joined")


async def main(queue: str, concurrency: int, options: dict[str, Any]) -> None:
    joins = logging.getLogger("aiokafka.consumer.group_coordinator")
    joins.setLevel(logging.INFO)
    joins.addHandler(Rebalances())
    joins.propagate = False
    settings = Settings(driver="kafka", options=options, shutdown_timeout=5.0)
    async with Manager(settings=settings, observers=[Telling()]) as manager:
        worker = Worker(manager, queue, concurrency=concurrency)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, worker.stop)
        note("up")
        await worker.run()
    note("down")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}))
