"""Servers of a run's own, so that they can be killed: what the chaos runs know of each backend."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

SERVICES = Path(__file__).parents[2] / "scripts" / "services"
RESTART_PATIENCE: Final = 60.0
"""Seconds in which a killed server must be back: PostgreSQL waits for its last backends and replays its log."""


@dataclass(frozen=True, slots=True)
class Backend:
    """service: its name in scripts/services. variable: where that prints the URL.

    request: bytes that every request of this protocol has.
    """

    service: str
    variable: str
    request: bytes


BACKENDS: Final = {
    "redis": Backend("redis", "REDIS_URL", b"EVALSHA"),
    "postgres": Backend("postgres", "DATABASE_URL_POSTGRES", b"S\x00\x00\x00\x04"),
    "mariadb": Backend("mariadb", "DATABASE_URL_MYSQL", b"\x00\x00\x03"),
}
CARRIERS: Final = {
    "kafka": Backend("kafka", "KAFKA_BROKERS", b""),
    "sqs": Backend("elasticmq", "SQS_ENDPOINT_URL", b""),
}
"""They tie no jobs together, so that a SQLite file beside them takes those that need it. Only workers are struck:
brokers tell their clients where to go, past any link, and ElasticMQ keeps nothing through a kill."""
DRIVERS: Final = ("sqlite", *BACKENDS, *CARRIERS)


@dataclass
class Server:
    """One server in `folder`, the same port and data after every restart. Owned by the run that started it."""

    backend: Backend
    folder: Path
    url: str = ""
    pid: int = 0
    frozen: bool = field(default=False)
    exports: dict[str, str] = field(default_factory=dict)
    """The environment in which clients find it."""

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def url_at(self, host: str, port: int) -> str:
        """The server's URL by way of a proxy."""
        parts = urlsplit(self.url)
        credentials = parts.netloc.rpartition("@")[0]
        place = f"{host}:{port}"
        return urlunsplit(parts._replace(netloc=f"{credentials}@{place}" if credentials else place))

    async def start(self) -> None:
        """Start it and wait until it answers."""
        async with asyncio.timeout(RESTART_PATIENCE):
            while (exports := await self._services("start")) is None:
                await asyncio.sleep(0.5)
        for word in shlex.split(exports):
            name, equals, value = word.partition("=")
            if equals:
                self.exports[name] = value
        self.url = self.exports[self.backend.variable]
        status = await self._services("status") or ""
        self.pid = int(status.split()[2])

    def kill(self) -> None:
        """kill -9 of the server and all that it has forked: nothing is flushed, nobody is told."""
        os.killpg(self.pid, signal.SIGKILL)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End it, whatever state it is in, and delete its data."""
        with suppress(ProcessLookupError):
            self.thaw()
        await self._services("clean")

    def _signal(self, number: int) -> None:
        os.killpg(self.pid, number)

    async def _services(self, command: str) -> str | None:
        words = [str(SERVICES), command] + ([self.backend.service] if command == "start" else [])
        env = {**os.environ, "NIMBUSQ_SERVICES_RUN": str(self.folder / "server")}
        process = await asyncio.create_subprocess_exec(
            *words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        output, _ = await process.communicate()
        return output.decode() if process.returncode == 0 else None
