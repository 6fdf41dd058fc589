"""Redis servers of a test's own, with the flags it needs."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def redis_server(folder: Path, *flags: str, port: int | None = None) -> AsyncIterator[int]:
    """A server in `folder` that answers; its port."""
    port = port or free_port()
    async with _process(folder, f"server-{port}", "--port", str(port), "--dir", str(folder), *flags):
        await until_it_answers(port)
        yield port


@asynccontextmanager
async def sentinel(folder: Path, master_port: int) -> AsyncIterator[int]:
    """A sentinel that watches one master under the name "jobs"; its port."""
    port = free_port()
    config = folder / "sentinel.conf"
    config.write_text(f"port {port}\ndir {folder}\nsentinel monitor jobs 127.0.0.1 {master_port} 1\n")
    async with _process(folder, "sentinel", str(config), "--sentinel"):
        await until_it_answers(port)
        yield port


async def until_it_answers(port: int) -> None:
    async with asyncio.timeout(10), Redis(port=port) as client:
        while True:
            try:
                await client.ping()
                return
            except (RedisError, OSError):
                await asyncio.sleep(0.02)


@asynccontextmanager
async def _process(folder: Path, name: str, *flags: str) -> AsyncIterator[None]:
    executable = shutil.which("redis-server") or pytest.skip("redis-server is not installed")
    with (folder / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            executable, *flags, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.kill()
            await process.wait()
