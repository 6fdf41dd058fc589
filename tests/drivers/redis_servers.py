"""Redis servers of a test's own, with the flags it needs."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError
from redis.retry import Retry


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def redis_server(folder: Path, *flags: str) -> AsyncIterator[int]:
    """A server in `folder` that answers; its port."""
    with redis_process(folder, *flags) as port:
        yield port


@contextmanager
def redis_process(folder: Path, *flags: str) -> Iterator[int]:
    """The same where nothing can be awaited."""
    port = free_port()
    with _process(folder, f"server-{port}", "--port", str(port), "--dir", str(folder), *flags):
        _until_it_answers(port)
        yield port


@contextmanager
def sentinel_process(folder: Path, master_port: int) -> Iterator[int]:
    """A sentinel that watches one master under the name "jobs"; its port."""
    port = free_port()
    config = folder / "sentinel.conf"
    config.write_text(f"port {port}\ndir {folder}\nsentinel monitor jobs 127.0.0.1 {master_port} 1\n")
    with _process(folder, "sentinel", str(config), "--sentinel"):
        _until_it_answers(port)
        yield port


def _until_it_answers(port: int) -> None:
    deadline = time.monotonic() + 10
    with Redis(port=port, retry=Retry(NoBackoff(), 0)) as client:
        while True:
            try:
                client.ping()
                return
            except AuthenticationError:
                return
            except (RedisError, OSError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


@contextmanager
def _process(folder: Path, name: str, *flags: str) -> Iterator[None]:
    executable = shutil.which("redis-server") or pytest.skip("redis-server is not installed")
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([executable, *flags], stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.kill()
            process.wait()
