"""Worker processes on one prefix, and what they wrote."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition

from nimbusq import Manager, Settings
from nimbusq_kafka.window import Window
from tests.drivers.kafka_env import drop, fresh_prefix

WORKER = Path(__file__).with_name("kafka_worker.py")

Event = dict[str, Any]


class Fleet:
    """Starts and kills workers of queue ``work``, sends jobs, reads the events. store: the URL of one beside it."""

    def __init__(self, brokers: str, folder: Path, *, store: str | None = None, **options: Any) -> None:
        self.brokers = brokers
        self._store = store
        self.prefix = fresh_prefix()
        self.options = {f"kafka_{name}": value for name, value in options.items()}
        self.log = folder / "events"
        self.log.touch()
        self.workers: list[asyncio.subprocess.Process] = []
        self.manager = Manager(
            settings=Settings(
                driver=f"kafka://{brokers}", store=store, prefix=self.prefix, options=self.options
            )
        )

    async def start(self, concurrency: int = 10) -> asyncio.subprocess.Process:
        """Another worker; it is up when this returns."""
        ups = self.count("up")
        env = {
            **os.environ,
            "KAFKA_BROKERS": self.brokers,
            "NIMBUSQ_PREFIX": self.prefix,
            "KAFKA_EVENTS": str(self.log),
            "NIMBUSQ_LEASE_SECONDS": "10",  # the store's; redis' own of 300 s outlasts a test
            **({"QUEUE_STORE_URL": self._store} if self._store else {}),
        }
        command = [sys.executable, str(WORKER), "work", str(concurrency), json.dumps(self.options)]
        with (self.log.parent / "workers.log").open("ab") as log:
            worker = await asyncio.create_subprocess_exec(*command, env=env, stderr=log)
        self.workers.append(worker)
        await self.until(lambda: self.count("up") > ups)
        return worker

    async def kill(self, worker: asyncio.subprocess.Process, with_signal: int = signal.SIGKILL) -> None:
        """Send the signal and wait for the end."""
        if worker.returncode is None:
            worker.send_signal(with_signal)
        async with asyncio.timeout(30):
            await worker.wait()

    async def until(self, true: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until the events say so."""
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.1)

    # --- what happened -----------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        return [json.loads(line) for line in self.log.read_bytes().splitlines()]

    def of(self, event: str) -> list[Event]:
        return [one for one in self.events if one["event"] == event]

    def count(self, event: str) -> int:
        return len(self.of(event))

    def ids(self, event: str) -> Counter[str]:
        """How often it happened to each job."""
        return Counter(one["id"] for one in self.of(event))

    async def committed(self, topic: str) -> dict[int, Window]:
        """The committed window of each partition of the topic."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.brokers)
        await admin.start()
        try:
            group = f"{self.prefix}.nimbus-queue"
            found: dict[TopicPartition, Any] = await admin.list_consumer_group_offsets(group)
        finally:
            await admin.close()
        return {
            tp.partition: Window.read(entry.offset, entry.metadata)[0]
            for tp, entry in found.items()
            if tp.topic == topic
        }


@asynccontextmanager
async def kafka_fleet(
    brokers: str, folder: Path, *, store: str | None = None, **options: Any
) -> AsyncIterator[Fleet]:
    """The option x is ``kafka_x``. Ends the workers that are left and deletes the topics."""
    fleet = Fleet(brokers, folder, store=store, **options)
    try:
        async with fleet.manager:
            for adapter in fleet.manager.route.adapters:
                await adapter.setup(["work"])
            yield fleet
    finally:
        for worker in fleet.workers:
            await fleet.kill(worker)
        await drop(brokers, fleet.prefix)
