"""The inline driver: `send()` runs the job, through the same execute path, before it returns.

Delays and back-offs are not slept. Retries, hooks, chains and callbacks are included, in a loop, so that a long
chain does not recurse. A job that was released or is blocked stays queued for a worker, or for a later send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

from nimbusq.driver import Claim, Lane, Outcome, PutBack, Retry, Settlement, Want
from nimbusq.ids import new_token
from nimbusq.manager import Manager
from nimbusq.worker.aftermath import Aftermath
from nimbusq.worker.conclude import conclude
from nimbusq.worker.decide import ended_unrun, interrupted
from nimbusq.worker.execute import execute
from nimbusq.worker.processes import Processes
from nimbusq.worker.run import Cut, Run, Surroundings

LEASE = 3600.0
RELEASED_FOR = 1.0
"""A released job is not due again within this drain."""
LOOKS = 100
"""So many due jobs are looked at for their queues."""


class InlineRunner:
    """Owned by one manager; drains may run in several tasks at once."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._aftermath = Aftermath(manager.observers)
        self._processes = Processes()
        self._around = Surroundings(
            manager=manager,
            adapter=manager.adapter,
            worker_id="inline",
            call_in_thread=self._call_in_thread,
            processes=self._processes,
            let_go=_keep_nothing,
        )
        self._threads = ThreadPoolExecutor(thread_name_prefix="nimbusq-inline")
        self._under_way: dict[str, asyncio.Event] = {}
        self._errors: dict[str, BaseException] = {}
        self._ours: set[str] = set()
        self._ended: set[str] = set()
        self._heads: dict[str, str] = {}
        """Chain link -> the job that was sent for it, the chain's first."""

    async def drain(self, job_ids: Iterable[str]) -> frozenset[str]:
        """Run everything that is due; which of these jobs have ended. Raises the last error of those that failed."""
        ours = set(job_ids)
        self._ours |= ours
        try:
            while claims := await self._claim():
                for claim in claims:
                    await self._run(claim)
            for job_id in ours & self._under_way.keys():
                await self._under_way[job_id].wait()
            errors = [self._errors[job_id] for job_id in ours if job_id in self._errors]
            ended = frozenset(ours & self._ended)
        finally:
            await self._processes.aclose()
            self._ours -= ours
            self._ended -= ours
            self._heads = {link: head for link, head in self._heads.items() if head not in ours}
            for job_id in ours:
                self._errors.pop(job_id, None)
        if errors:
            raise errors[-1]
        return ended

    async def _claim(self) -> Sequence[Claim]:
        """The next job that is due, of any queue, and those to be ended unrun that were found on the way."""
        jobs = self._manager.require("jobs", "running jobs inline")
        due, _ = await jobs.list(state="ready", limit=LOOKS)
        lanes = tuple(Lane(queue=queue, limit=1) for queue in dict.fromkeys(view.queue for view in due))
        if not lanes:
            return ()
        want = Want(token=new_token(), limit=1, lease=LEASE, lanes=lanes)
        return (await self._manager.adapter.claim(want)).claims

    async def _run(self, claim: Claim) -> None:
        run = Run(claim, self._around)
        self._under_way[claim.id] = asyncio.Event()
        try:
            if claim.ending is not None:
                outcome: Outcome | None = ended_unrun(run)
            else:
                outcome = await self._outcome(run)
            await self._settle(run, outcome)
        finally:
            self._under_way.pop(claim.id).set()

    async def _outcome(self, run: Run) -> Outcome | None:
        """The run has a task of its own, so that cancelling the sender interrupts the job like a shutdown does."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(execute(run), context=Context())
        run.task = task
        header = run.header
        if header is not None and header.timeout is not None:
            run.timers.append(loop.call_later(header.timeout, run.cut, Cut.TIMEOUT))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            run.cut(Cut.SHUTDOWN)
            await asyncio.wait({task}, timeout=self._manager.settings.cancel_grace)
            if task.done():
                await self._settle(run, interrupted(run) if task.cancelled() else task.result())
            raise
        return task.result()

    def _call_in_thread(self, call: Callable[[], Any]) -> Future[Any]:
        return self._threads.submit(copy_context().run, call)

    async def _settle(self, run: Run, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        settlement = await conclude(run, _without_delay(outcome))
        answer = (await self._manager.adapter.settle([settlement]))[0]
        self._note(run, settlement)
        await self._aftermath.settled(run, settlement, answer)
        if self._aftermath.hooks:
            await asyncio.wait(self._aftermath.hooks)

    def _note(self, run: Run, settlement: Settlement) -> None:
        """What the sender is to hear: of its own job, and of the links that follow it."""
        job_id = run.claim.id
        head = self._heads.get(job_id, job_id)
        if not settlement.terminal or head not in self._ours:
            return
        if job_id in self._ours:
            self._ended.add(job_id)
        if settlement.failed is not None and run.error is not None:
            self._errors[head] = run.error
        self._heads.update((link.id, head) for link in settlement.push if link.chain is not None)


def _without_delay(outcome: Outcome) -> Outcome:
    match outcome:
        case Retry():
            return replace(outcome, delay=0.0)
        case PutBack(delay=delay):
            return replace(outcome, delay=max(delay, RELEASED_FOR))
        case _:
            return outcome


def _keep_nothing(_run: Run) -> None:
    """Inline runs have no keeper."""
