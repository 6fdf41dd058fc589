"""What is told once a settlement has been answered: observers, counters, logs, and the job's own `failed()`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter, defaultdict
from collections.abc import Coroutine
from typing import Any, Final

from nimbusq import context as contexts
from nimbusq.batch import SentBatch
from nimbusq.driver import (
    BatchState,
    Cancelled,
    Claim,
    Done,
    Failed,
    Lost,
    PutBack,
    Retry,
    Settled,
    Settlement,
    SettleStatus,
)
from nimbusq.errors import BatchNotFound, JobError, JobFailed, StoreError
from nimbusq.jobs import Job
from nimbusq.observe import Observers
from nimbusq.outcome import described
from nimbusq.worker.execute import load
from nimbusq.worker.run import Run

log = logging.getLogger("nimbusq.worker")

HOOK_PATIENCE: Final = 30.0
"""Seconds that a `failed()` hook may take."""


class Aftermath:
    """Owned by the worker's event loop. `hooks` are the tasks of `failed()` hooks, and of what
    else follows an end, awaited at shutdown."""

    def __init__(self, observers: Observers) -> None:
        self._observers = observers
        self.counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.hooks: set[asyncio.Task[None]] = set()

    async def settled(self, run: Run, settlement: Settlement, answer: Settled) -> None:
        """The store has answered a settlement. A driver's ALREADY means that this very call did it before."""
        claim = run.claim
        if answer.status is SettleStatus.LOST:
            await self._refused(claim, settlement)
            return
        match settlement.outcome:
            case Done():
                await self._tell(claim, "processed", run.duration, None)
            case Failed(error=error):
                self.counters[claim.queue]["failed"] += 1
                await self._tell(claim, "processed", run.duration, error, count=False)
                self._call_failed_hook(run)
            case Retry(delay=delay, error=error):
                await self._tell(claim, "retried", delay, error)
            case PutBack(delay=delay, counted=counted):
                if counted:
                    await self._tell(claim, "released", delay)
            case Cancelled(reason=reason):
                await self._tell(claim, "cancelled", reason)
        if answer.batch is not None and answer.batch.finished:
            await self.batch_finished(answer.batch.state)
        elif answer.batch is not None and answer.batch.state.cancelled and settlement.failed is not None:
            self._start(
                self._cancel_rest(run, answer.batch.state), f"cancelling batch {answer.batch.state.id}"
            )

    async def _tell(self, claim: Claim, event: str, *details: Any, count: bool = True) -> None:
        if count:
            self.counters[claim.queue][event] += 1
        if self._observers.wants(event):
            await self._observers.tell(event, claim, *details)

    async def _refused(self, claim: Claim, settlement: Settlement) -> None:
        log.warning(
            "lease lost: the %s of job %s (attempt %d, token %s) was refused; another worker has the job, or had it",
            type(settlement.outcome).__name__.lower(),
            claim.id,
            claim.attempt,
            claim.token,
            extra={"event": "stale_finish", "job_id": claim.id},
        )
        await self._lease_lost(claim)

    async def cut_off(self, claim: Claim) -> None:
        """A run was cancelled because its lease is gone: there is nothing to settle."""
        log.warning(
            "lease lost: job %s was cut off in attempt %d; another worker has it, or had it",
            claim.id,
            claim.attempt,
            extra={"event": "lease_lost", "job_id": claim.id},
        )
        await self._lease_lost(claim)

    async def _lease_lost(self, claim: Claim) -> None:
        self.counters[claim.queue]["stale"] += 1
        await self._observers.tell("lease_lost", claim)

    async def batch_finished(self, state: BatchState) -> None:
        """All members of a batch have ended, by this worker's settlement."""
        await self._observers.tell("batch_finished", state)

    async def reclaimed(self, lost: list[Lost]) -> None:
        """This worker's claim took back leases of others."""
        for one in lost:
            self.counters[one.queue]["reclaimed"] += 1
            log.warning(
                "job %s lost its worker in attempt %d and is taken back",
                one.id,
                one.attempt,
                extra={"event": "reclaimed", "job_id": one.id},
            )
        await self._observers.tell("reclaimed", lost)

    # --- failed() ----------------------------------------------------------------------------------------------

    def _call_failed_hook(self, run: Run) -> None:
        job = run.job or _unrun(run)
        if job is None or type(job).failed is Job.failed or run.error is None:
            return
        self._start(self._failed_hook(run, job), f"failed() of {run.claim.id}")

    def _start(self, hook: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(hook, name=name)
        self.hooks.add(task)
        task.add_done_callback(self.hooks.discard)

    async def _cancel_rest(self, run: Run, state: BatchState) -> None:
        """A failed member has cancelled its batch: end what is delayed and stop what runs, before a worker comes upon
        it."""
        try:
            await SentBatch(state, run.around.manager).cancel()
        except (StoreError, BatchNotFound) as error:
            log.warning("members of the cancelled batch %s end when they are due: %s", state.id, error)

    async def _failed_hook(self, run: Run, job: Job) -> None:
        assert run.error is not None, "checked before the task was made"
        error = (
            run.error if isinstance(run.error, Exception) else JobFailed(run.claim.id, described(run.error))
        )
        run.around.manager.make_current()
        if run.context is not None:
            contexts.enter(run.context)
        try:
            async with asyncio.timeout(HOOK_PATIENCE):
                answer = job.failed(error)
                if inspect.isawaitable(answer):
                    await answer
        except BaseException as trouble:  # its own cancellation too; but for the interpreter's end
            if isinstance(trouble, KeyboardInterrupt):
                raise
            self.counters[run.claim.queue]["hook_errors"] += 1
            log.exception("failed() of job %s did not succeed; the job stays failed", run.claim.id)
            await self._observers.tell("hook_failed", run.claim, "failed", trouble)


def _unrun(run: Run) -> Job | None:
    """The job of a claim that was ended without a run (its worker was lost), where it can be read."""
    if run.claim.ending is None:
        return None
    try:
        return load(run)
    except JobError:
        return None
