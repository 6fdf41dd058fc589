"""Where a fault test plays: a queue under a prefix of its own, and the worker processes on it."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from nimbusq import Manager, Settings
from nimbusq.driver import Adapter
from nimbusq.loading import load_adapter
from tests.faults.ledger import Ledger

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("worker.py")
PATIENCE = 30.0
"""Seconds in which what must happen does, on a busy machine."""

Process = subprocess.Popen[bytes]


@dataclass
class Stage:
    """url: the queue as this process reaches it; worker_url: as the workers do. app: the file with their jobs."""

    url: str
    folder: Path
    app: Path
    worker_url: str = ""
    store: str = ""
    """The URL of one beside the queue's driver."""
    testing: bool = True
    prefix: str = field(default_factory=lambda: f"f{secrets.token_hex(6)}")
    processes: list[Process] = field(default_factory=list)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.folder / "ledger")

    # --- the queue ---------------------------------------------------------------------------------------------

    def settings(self, **changes: Any) -> Settings:
        return Settings(driver=self.url, prefix=self.prefix, **changes)

    def adapter(self) -> Any:
        """An adapter of this process's own, in testing mode."""
        settings = self.settings()
        return load_adapter(self.url, settings.for_driver(self.url, testing=self.testing))

    @asynccontextmanager
    async def manager(self, **options: Any) -> AsyncIterator[Manager]:
        """The current manager of the test, on the stage's queue."""
        adapter: Adapter = self.adapter()
        async with Manager(adapter, store=self.beside(), settings=self.settings(), **options) as manager:
            yield manager

    def beside(self) -> Any:
        """An adapter of the store, where there is one."""
        settings = self.settings().for_driver(self.store, beside=True, testing=self.testing)
        return load_adapter(self.store, settings) if self.store else None

    async def setup(self, *queues: str) -> None:
        for adapter in filter(None, (self.adapter(), self.beside())):
            await adapter.setup(queues or ["default"])

    # --- workers -----------------------------------------------------------------------------------------------

    def start(self, *queues: str, **options: float) -> Process:
        """Start a worker, or with ``nursery=N`` a process that keeps N of them at work."""
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        env = {
            **os.environ,
            "QUEUE_DRIVER": self.worker_url or self.url,
            **({"QUEUE_STORE_URL": self.store} if self.store else {}),
            "NIMBUSQ_PREFIX": self.prefix,
            "LEDGER": str(self.ledger.path),
            "APP": str(self.app),
            "TESTING": "1" if self.testing else "0",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'drivers'}",  # this very checkout, whatever is installed
        }
        with (self.folder / f"worker-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(WORKER), *(queues or ["default"]), *words],
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    async def started(self, *queues: str, **options: float) -> Process:
        """Start a worker and wait until it works."""
        before = self.ledger.count("up")
        process = self.start(*queues, **options)
        await self.until(lambda: self.ledger.count("up") > before, "the worker's start")
        return process

    def workers(self) -> list[int]:
        """The pids of all workers that are alive, those of nurseries too."""
        alive: list[int] = []
        for process in self.processes:
            if process.poll() is None:
                with suppress(psutil.NoSuchProcess):
                    children = psutil.Process(process.pid).children()
                    alive += [child.pid for child in children] or [process.pid]
        return alive

    async def stopped(self, process: Process, number: int = signal.SIGTERM, within: float = PATIENCE) -> int:
        """Send the signal and wait for the end; the exit code."""
        if process.poll() is None:
            process.send_signal(number)
        await self.until(lambda: process.poll() is not None, "the worker's end", within)
        return process.wait()

    def end(self) -> None:
        """Kill every process of the stage, and those that they forked."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # --- waiting -----------------------------------------------------------------------------------------------

    async def until(self, true: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
        """Wait until it is true; after `within` seconds the test fails with the workers' logs."""
        deadline = time.monotonic() + within
        while not true():
            assert time.monotonic() < deadline, f"{what} did not happen in {within:g} s.\n{self.logs()}"
            await asyncio.sleep(0.02)

    async def until_empty(self, manager: Manager, *queues: str, within: float = PATIENCE) -> None:
        """Wait until nothing waits and nothing runs."""
        deadline = time.monotonic() + within
        while any(d.pending or d.delayed or d.running for d in await manager.depths(queues or ["default"])):
            assert time.monotonic() < deadline, f"not empty in {within:g} s.\n{self.logs()}"
            await asyncio.sleep(0.05)

    def logs(self) -> str:
        """The end of every worker's log."""
        paths = sorted(self.folder.glob("worker-*.log"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-3000:]}" for path in paths)


@asynccontextmanager
async def staged(stage: Stage, *queues: str) -> AsyncIterator[Stage]:
    """Set the stage up, and leave no process behind."""
    try:
        await stage.setup(*queues)
        yield stage
    finally:
        stage.end()
