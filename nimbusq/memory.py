"""The seed's in-memory pool: a few workers over a bounded buffer, in this process, nothing stored."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final, Self

from nimbusq.calling import call_to_its_end
from nimbusq.errors import InvalidOption, StoreFull
from nimbusq.jobs import Job

log = logging.getLogger("nimbusq.memory")

BUFFER: Final = 1024


class PoolFull(StoreFull):
    """The pool's buffer is full: nothing was queued. `await pool.put(job)` waits instead."""


class MemoryPool:
    """``async with MemoryPool(workers=4) as pool: pool.push(job)``.

    Leaving the ``async with`` runs what is queued, then ends the workers. A job that raises is logged and counted
    in `failed`; there are no retries, and a released job runs again after its delay, in the same worker. For
    anything that must survive this process, use a Manager.
    """

    def __init__(self, workers: int = 4, *, buffer: int = BUFFER) -> None:
        if workers < 1 or buffer < 1:
            raise InvalidOption("a MemoryPool needs at least one worker and room for one job.")
        self._workers = workers
        self._jobs: asyncio.Queue[Job] = asyncio.Queue(buffer)
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []
        self.processed = 0
        self.failed = 0

    def push(self, job: Job) -> None:
        """Queue a job. Raises PoolFull, where the seed drops it silently."""
        try:
            self._jobs.put_nowait(job)
        except asyncio.QueueFull:
            raise PoolFull(
                f"the pool holds {self._jobs.maxsize} jobs already: put() waits for room."
            ) from None

    async def put(self, job: Job) -> None:
        """Queue a job, as soon as there is room."""
        await self._jobs.put(job)

    async def join(self) -> None:
        """Wait until everything that was queued has run."""
        await self._jobs.join()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._tasks = [self._group.create_task(self._work()) for _ in range(self._workers)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.join()
        finally:
            for task in self._tasks:
                task.cancel()
            await self._group.__aexit__(None, None, None)  # the block's error is its own, in no group

    async def _work(self) -> None:
        while True:
            job = await self._jobs.get()
            try:
                await call_to_its_end(job)
                self.processed += 1
            except Exception:
                self.failed += 1
                log.exception("job %s failed", job.options.name)
            finally:
                self._jobs.task_done()
