"""A worker inside an ASGI application: ``app = FastAPI(lifespan=worker_lifespan("default"))``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from nimbusq.config import Settings
from nimbusq.errors import ConfigError
from nimbusq.manager import Manager, Register, boot
from nimbusq.worker import Worker
from nimbusq.worker.queues import Queues

log = logging.getLogger("nimbusq.worker")


@asynccontextmanager
async def embedded_worker(worker: Worker) -> AsyncIterator[Worker]:
    """Run `worker` beside the ``async with`` body and stop it in good order afterwards.

    It takes no signal handlers: the host's server decides when the body ends. Leaving takes at most the worker's
    grace and a few seconds for handlers that must be cancelled. A worker that breaks is logged at once, `ready`
    turns false, and its error is raised at the end.
    """
    task = asyncio.create_task(worker.run(), name="nimbusq-worker")
    task.add_done_callback(_report)
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait({task})
    task.result()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the embedded worker has ended with an error: %r", error)


def worker_lifespan(
    queues: Queues | None = "default",
    *,
    concurrency: int = 10,
    lease: float | None = None,
    grace: float | None = None,
    settings: Settings | None = None,
    manager: Manager | None = None,
    register: Register | None = None,
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """A lifespan for Starlette, FastAPI and whatever takes one: opens the manager as the process default and runs
    a worker of these queues.

    queues: see `Worker`; None runs no worker, for processes that only send. The lifespan's state has ``nimbusq``
    (the Manager) and ``nimbusq_worker``. Raises what `boot` raises before the application starts.
    """
    if settings is not None and manager is not None:
        raise ConfigError("worker_lifespan takes settings or a manager, not both.")

    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[dict[str, Any]]:
        opened = await boot(settings, manager=manager, register=register)
        try:
            if queues is None:
                yield {"nimbusq": opened, "nimbusq_worker": None}
                return
            worker = Worker(opened, queues, concurrency=concurrency, lease=lease, grace=grace)
            async with embedded_worker(worker):
                yield {"nimbusq": opened, "nimbusq_worker": worker}
        finally:
            await opened.aclose()

    return lifespan
