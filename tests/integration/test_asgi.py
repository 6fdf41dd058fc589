"""The worker inside a running uvicorn application."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from nimbusq import Manager

PROGRAMS = Path(__file__).parent / "programs"


class Server:
    """uvicorn with `programs/asgi_app.py`, on an SQLite file of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        env = {**os.environ, "LEDGER": str(self.ledger), "QUEUE_DRIVER": self.url}
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "asgi_app:app",
            "--port",
            str(port),
            "--log-level",
            "warning",
        ]
        self.process = subprocess.Popen(command, cwd=PROGRAMS, env=env, stderr=subprocess.PIPE, text=True)
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10)

    async def get(self, path: str) -> Any:
        return (await self.client.get(path)).json()

    async def up(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                await self.get("/handlers")
            except httpx.TransportError:
                assert self.process.poll() is None, self.process.communicate()[1]
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            else:
                return

    async def noted(self, line: str) -> None:
        deadline = time.monotonic() + 10
        while line not in self.lines():
            assert time.monotonic() < deadline, f"{line!r} is not in {self.lines()}"
            await asyncio.sleep(0.02)

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines()

    async def ended(self, within: float) -> int:
        deadline = time.monotonic() + within
        while (code := self.process.poll()) is None:
            assert time.monotonic() < deadline, "the server did not end in time"
            await asyncio.sleep(0.02)
        return code


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    try:
        await server.up()
        yield server
    finally:
        await server.client.aclose()
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


async def test_jobs_sent_by_requests_run_and_no_signal_handler_is_taken(server: Server) -> None:
    before = await server.get("/handlers")
    assert before["sigterm"].startswith("uvicorn")
    assert before["ready"] is True
    assert (await server.get("/send?seconds=0.01"))["status"] == "queued"
    await server.noted("end 0.01")


async def test_sigterm_lets_the_request_and_the_job_finish(server: Server) -> None:
    await server.get("/send?seconds=0.8")
    await server.noted("start 0.8")
    request = asyncio.create_task(server.get("/slow"))
    await server.noted("request start")
    server.process.send_signal(signal.SIGTERM)
    assert await request == {"slow": True}
    await server.ended(within=6)
    assert "end 0.8" in server.lines()


async def test_a_job_longer_than_the_grace_is_handed_back_without_an_attempt(server: Server) -> None:
    await server.get("/send?seconds=60")
    await server.noted("start 60.0")
    server.process.send_signal(signal.SIGTERM)
    await server.ended(within=2 + 4 + 1)
    assert "end 60.0" not in server.lines()
    async with Manager(server.url) as manager:
        depth = await manager.depth()
        assert (depth.pending, depth.delayed, depth.running) == (1, 0, 0)
    path = server.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("select attempts from nimbusq_jobs").fetchall() == [(0,)]
