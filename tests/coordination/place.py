"""A queue of its own for one test: where it is, how other processes reach it, and how it is cleaned up."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from nimbusq import Manager, Settings, Worker
from nimbusq.driver import Adapter
from nimbusq.loading import load_adapter
from tests.drivers import kafka_env, redis_env, sqs_env

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 60.0

Advance: TypeAlias = Callable[[float], Awaitable[None]]


@dataclass
class Place:
    """`url` under a prefix of its own; `processes` tells whether other processes can reach it."""

    url: str
    folder: Path
    store: str | None = None
    prefix: str = field(default_factory=lambda: f"t{secrets.token_hex(6)}")
    options: dict[str, Any] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def processes(self) -> bool:
        return not self.url.startswith(("memory", "sync"))

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def settings(self, **changes: Any) -> Settings:
        changes = {"options": self.options, **changes}
        return Settings(driver=self.url, store=self.store, prefix=self.prefix, **changes)

    @asynccontextmanager
    async def manager(self, **changes: Any) -> AsyncIterator[Manager]:
        async with Manager(settings=self.settings(**changes)) as manager:
            yield manager

    @asynccontextmanager
    async def time_machine(self, **changes: Any) -> AsyncIterator[tuple[Manager, Advance]]:
        """A manager, and a function that moves the store's clock forward by seconds."""
        settings = self.settings(**changes)
        adapter: Any = load_adapter(self.url, settings.for_driver(self.url, testing=True))
        async with Manager(adapter, settings=settings) as manager:
            yield manager, adapter.advance

    def start(self, program: str, *words: object, **env: object) -> subprocess.Popen[str]:
        """Start `programs/NAME.py`; it reads the queue's address and the ledger from its environment."""
        variables = {
            **os.environ,
            "QUEUE_DRIVER": self.url,
            "NIMBUSQ_PREFIX": self.prefix,
            "LEDGER": str(self.ledger),
            "PYTHONPATH": str(PROGRAMS),
            **({"QUEUE_STORE_URL": self.store} if self.store else {}),
            **{name: str(value) for name, value in env.items()},
        }
        command = [sys.executable, str(PROGRAMS / f"{program}.py"), *map(str, words)]
        with (self.folder / f"stderr-{len(self.started)}").open("wb") as errors:
            process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def freeze(self, process: subprocess.Popen[str]) -> None:
        """Stop a process, for SIGCONT to let it go on, while it holds nothing that others wait for.

        SQLite has one writer at a time, so while this process is it, the other is inside no write. A server ends a
        statement by itself, whoever sleeps.
        """
        with ExitStack() as stack:
            if self.url.startswith("sqlite"):
                file = stack.enter_context(
                    closing(sqlite3.connect(self.folder / "jobs.db", timeout=10, isolation_level=None))
                )
                file.execute("begin immediate")
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

    def notes(self, event: str) -> list[list[str]]:
        """The ledger's lines of one event: what handlers noted, word by word, with the monotonic time first."""
        if not self.ledger.exists():
            return []
        lines = (line.split() for line in self.ledger.read_text().splitlines())
        return [line for line in lines if line[1] == event]

    def counts(self, event: str) -> Counter[str]:
        """How often each job noted the event, by its first word."""
        return Counter(line[2] for line in self.notes(event))

    async def until(self, true: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
        deadline = time.monotonic() + within
        while not true():
            self._check_programs()
            assert time.monotonic() < deadline, f"{what} did not happen in {within} s; {self.errors()}"
            await asyncio.sleep(0.02)

    async def until_empty(self, manager: Manager, *queues: str, within: float = PATIENCE) -> None:
        """Nothing waits and nothing runs."""
        deadline = time.monotonic() + within
        while any(d.pending or d.delayed or d.running for d in await manager.depths(queues or ["default"])):
            self._check_programs()
            assert time.monotonic() < deadline, f"not empty in {within} s: {self.errors()}"
            await asyncio.sleep(0.05)

    async def until_idle(self, manager: Manager, queue: str = "default", within: float = PATIENCE) -> None:
        """Nothing is due and nothing runs."""
        deadline = time.monotonic() + within
        while (depth := await manager.depth(queue)).pending or depth.running:
            assert time.monotonic() < deadline, f"not idle in {within} s: {self.errors()}"
            await asyncio.sleep(0.02)

    def _check_programs(self) -> None:
        """None has ended by an error of its own, which the test would wait out."""
        assert not any((process.poll() or 0) > 0 for process in self.started), self.errors()

    def errors(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("stderr-*")))

    def end(self) -> None:
        """Kill every process, and those that it forked."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@asynccontextmanager
async def place(url: str, folder: Path, store: str | None = None) -> AsyncIterator[Place]:
    """A place that is empty before and gone afterwards."""
    here = Place(url, folder, store)
    if url.startswith("kafka"):
        here.options.update(kafka_env.OPTIONS)
    manager = Manager(settings=here.settings())
    try:
        for adapter in manager.route.adapters:
            await adapter.setup(["default"])
            await adapter.aclose()
        yield here
    finally:
        here.end()
        for adapter in manager.route.adapters:
            await _clean(adapter, here)


async def _clean(adapter: Adapter, here: Place) -> None:
    driver: Any = adapter
    match adapter.capabilities.driver:
        case "database":
            async with driver.migrations.connected() as migrations:
                await migrations.down(0)
        case "redis":
            async with redis_env.opened(driver):
                await redis_env.drop(driver)
        case "sqs":
            await sqs_env.drop(driver, here.prefix)
        case "kafka":
            await kafka_env.drop(here.url.removeprefix("kafka://"), here.prefix)


@asynccontextmanager
async def workers(*several: Worker) -> AsyncIterator[None]:
    """Workers in this process, stopped in good order."""
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for worker in several:
            group.create_task(worker.run())
            stack.callback(worker.stop)
        yield
