"""The jobs of these tests: each notes in the ledger what it does, one O_APPEND line at a time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from nimbusq import BatchState, JobFailed, Release, current_job, job


def note(event: str, *words: object) -> None:
    line = f"{time.monotonic():.6f} {event} {' '.join(map(str, words))}\n"
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, line.encode())
    os.close(ledger)


def first_time(name: str) -> bool:
    """True once for each name, in all processes."""
    try:
        Path(f"{os.environ['LEDGER']}.{name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def claimed_at() -> str:
    """When the running job was claimed, on the store's clock."""
    claim = current_job().claim
    return f"{claim.run_at + claim.waited:.6f}"


@job(backoff=0.05)
async def step(name: str, seconds: float = 0.0) -> None:
    note("start", name, current_job().attempt, claimed_at(), current_job().releases)
    await asyncio.sleep(seconds)
    note("end", name)


@job(backoff=0.05)
async def held(name: str) -> None:
    """Runs until `let_go(name)`."""
    note("start", name, current_job().attempt)
    while not _gate(name).exists():
        await asyncio.sleep(0.02)
    note("end", name)


def let_go(name: str) -> None:
    _gate(name).touch()


def _gate(name: str) -> Path:
    return Path(f"{os.environ['LEDGER']}.{name}.gate")


@job(backoff=0.05)
async def flaky(name: str, failures: int) -> None:
    """Fails that often, then succeeds."""
    note("start", name, current_job().attempt)
    if current_job().attempt <= failures:
        raise ValueError(name)
    note("end", name)


@job(retries=0)
async def broken(name: str) -> None:
    note("start", name)
    raise ValueError(name)


@job
async def patient(name: str, releases: int, delay: float = 0.05) -> None:
    """Is put back that often, then succeeds."""
    note("start", name, current_job().attempt)
    if current_job().releases < releases:
        raise Release(delay)
    note("end", name)


@job(backoff=0.05)
async def suicidal(name: str) -> None:
    """Kills its process at the end of its first run, after its effect and before its settlement."""
    note("start", name, current_job().attempt)
    note("end", name)
    if first_time(name):
        os.kill(os.getpid(), signal.SIGKILL)


@job
async def on_then(batch: BatchState) -> None:
    note("then", batch.id, batch.total, batch.pending, batch.failed)


@job
async def on_catch(batch: BatchState, error: JobFailed) -> None:
    note("catch", batch.id, error.job_id, error.error)


@job(backoff=0.05)
async def on_finally_dying(batch: BatchState) -> None:
    """Kills its process in its first run."""
    note("finally", batch.id, batch.total, batch.pending, batch.failed)
    if first_time("finally"):
        os.kill(os.getpid(), signal.SIGKILL)


@job
async def on_finally(batch: BatchState) -> None:
    note("finally", batch.id, batch.total, batch.pending, batch.failed)


@job
async def on_failure(error: JobFailed) -> None:
    note("on_failure", error.job_id, error.error)
