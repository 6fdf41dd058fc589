"""The inline driver: `send()` runs the job, through the same execute path, before it returns.

Delays and back-offs are not slept. Retries, hooks, chains and callbacks are included, in a loop, so that a long
chain does not recurse. A job that was released or is blocked stays queued for a worker, or for a later send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from nimbusq.driver import Claim, Lane, Outcome, PutBack, Retry, Settlement, Want
from nimbusq.ids import new_token
from nimbusq.manager import Manager
from nimbusq.worker.aftermath import Aftermath
from nimbusq.worker.execute import conclude, ended_unrun, execute
from nimbusq.worker.run import Run, Surroundings

LEASE = 3600.0
RELEASED_FOR = 1.0
"""A released job is not due again within this drain."""


class InlineRunner:
    """Owned by one manager; drains may run in several tasks at once."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._aftermath = Aftermath(manager.observers)
        self._around = Surroundings(
            manager=manager,
            adapter=manager.adapter,
            worker_id="inline",
            call_in_thread=self._call_in_thread,
            let_go=_keep_nothing,
        )
        self._threads = ThreadPoolExecutor(thread_name_prefix="nimbusq-inline")
        self._under_way: dict[str, asyncio.Event] = {}
        self._errors: dict[str, BaseException] = {}
        self._ours: set[str] = set()
        self._ended: set[str] = set()

    async def drain(self, job_ids: Iterable[str]) -> frozenset[str]:
        """Run everything that is due; which of these jobs have ended. Raises the last error of those that failed."""
        ours = set(job_ids)
        self._ours |= ours
        try:
            while (claim := await self._claim()) is not None:
                await self._run(claim)
            for job_id in ours & self._under_way.keys():
                await self._under_way[job_id].wait()
            errors = [self._errors[job_id] for job_id in ours if job_id in self._errors]
            ended = frozenset(ours & self._ended)
        finally:
            self._ours -= ours
            self._ended -= ours
            for job_id in ours:
                self._errors.pop(job_id, None)
        if errors:
            raise errors[-1]
        return ended

    async def _claim(self) -> Claim | None:
        jobs = self._manager.require("jobs", "running jobs inline")
        due, _ = await jobs.list(state="ready", limit=1)
        if not due:
            return None
        lanes = (Lane(queue=due[0].queue, limit=1),)
        claimed = await self._manager.adapter.claim(
            Want(token=new_token(), limit=1, lease=LEASE, lanes=lanes)
        )
        return claimed.claims[0] if claimed.claims else None

    async def _run(self, claim: Claim) -> None:
        run = Run(claim, self._around)
        self._under_way[claim.id] = asyncio.Event()
        try:
            if claim.ending is not None:
                outcome: Outcome | None = ended_unrun(run)
            else:
                outcome = await asyncio.get_running_loop().create_task(execute(run), context=copy_context())
            if outcome is not None:
                await self._settle(run, await conclude(run, _without_delay(outcome)))
        finally:
            self._under_way.pop(claim.id).set()

    def _call_in_thread(self, call: Callable[[], Any]) -> Future[Any]:
        return self._threads.submit(copy_context().run, call)

    async def _settle(self, run: Run, settlement: Settlement) -> None:
        answer = (await self._manager.adapter.settle([settlement]))[0]
        if settlement.terminal and run.claim.id in self._ours:
            self._ended.add(run.claim.id)
            if settlement.failed is not None and run.error is not None:
                self._errors[run.claim.id] = run.error
        await self._aftermath.settled(run, settlement, answer)
        if self._aftermath.hooks:
            await asyncio.wait(self._aftermath.hooks)


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
