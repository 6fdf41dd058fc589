"""The runs of one worker: begun with a claim, cut when they must not go on, abandoned when they do not listen."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextvars import Context
from typing import Any

from nimbusq.driver import Claim, Done, Outcome, Settled, Settlement, SettleStatus
from nimbusq.worker.aftermath import Aftermath
from nimbusq.worker.decide import decide, ended_unrun, time_limit
from nimbusq.worker.execute import execute
from nimbusq.worker.run import Cut, Run
from nimbusq.worker.shutdown import watch
from nimbusq.worker.slots import Slots
from nimbusq.worker.station import Station

log = logging.getLogger("nimbusq.worker")


class Runs:
    """Owned by the worker's event loop; only `cut_soon` is called from other threads.

    cancel_grace: seconds that a cancelled handler may take to clean up.
    """

    def __init__(self, slots: Slots, aftermath: Aftermath, *, cancel_grace: float) -> None:
        self._slots = slots
        self._aftermath = aftermath
        self._cancel_grace = cancel_grace
        self._running: dict[asyncio.Task[None], tuple[Run, Station]] = {}
        self._zombies: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Runs will begin in the running loop."""
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._running)

    @property
    def abandoned(self) -> int:
        """Handlers that ignored their cancellation and still run, outside any slot."""
        return len(self._zombies)

    # --- a run's life ------------------------------------------------------------------------------------------

    def begin(self, station: Station, claim: Claim, sent_at: float) -> None:
        """Start a task for the claim; one with an ending goes to the settler as it is and takes no slot."""
        run = Run(claim, station.surroundings)
        if claim.ending is not None:
            station.settler.submit(run, ended_unrun(run))
            return
        self._slots.take(claim.queue)
        run.has_slot = True
        station.keep(run, sent_at, self.cut_soon)
        task = asyncio.get_running_loop().create_task(self._run(run, station), context=Context())
        run.task = task
        self._running[task] = run, station
        task.add_done_callback(self._forget)
        self._limit(run)

    async def _run(self, run: Run, station: Station) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await execute(run)
        finally:
            station.release(run)
        if outcome is not None:
            if not _lets_others_go(run):
                self._free(run)
            station.settler.submit(run, outcome)
        elif run.cut_by is Cut.LEASE_LOST:
            await self._aftermath.cut_off(run.claim)
        elif run.context is not None and run.context.completed:
            settlement = Settlement(claim=run.claim, outcome=Done())
            await self._aftermath.settled(run, settlement, Settled(SettleStatus.SETTLED))

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._zombies.discard(task)
        entry = self._running.pop(task, None)
        if entry is None:
            return
        run, station = entry
        self._free(run)
        if task.cancelled() and run.end():  # before its first step, so that none of its code has run
            station.release(run)
            if (outcome := decide(run, asyncio.CancelledError())) is not None:
                station.settler.submit(run, outcome)

    def _free(self, run: Run) -> None:
        """Give the slot back, once."""
        if run.has_slot:
            run.has_slot = False
            self._slots.give_back(run.claim.queue)

    def _limit(self, run: Run) -> None:
        """The time limit is kept by the loop's timer, so that a job without one costs nothing."""
        limit = time_limit(run)
        if limit is not None and self._loop is not None:
            run.timers.append(self._loop.call_later(limit, self.cut, run, Cut.TIMEOUT))

    # --- ends that are not the handler's own ---------------------------------------------------------------------

    def cut(self, run: Run, reason: Cut) -> None:
        """Cancel the handler, and abandon it if it has not ended after the grace for cleaning up."""
        if run.over:
            return
        run.cut(reason)
        if self._loop is not None:
            run.timers.append(self._loop.call_later(self._cancel_grace, self._abandon, run))

    def cut_soon(self, run: Run, reason: Cut) -> None:
        """The same, from the keeper's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.cut, run, reason)

    def _abandon(self, run: Run) -> None:
        """The handler ignores its cancellation: stop renewing, so that the job returns with its lease, and free the
        slot, unless as many handlers as there are slots have been abandoned already."""
        task = run.task
        if task is None or task not in self._running or not run.end():
            return
        log.error(
            "job %s ignored its cancellation (%s) for %g s and is abandoned; it returns with its lease",
            run.claim.id,
            run.cut_by.value if run.cut_by else "",
            self._cancel_grace,
            extra={"event": "abandoned", "job_id": run.claim.id},
        )
        station = self._running[task][1]
        station.release(run)
        if station.adapter.capabilities.lease == "session" and run.cut_by is not Cut.SHUTDOWN:
            # No lease runs out while this worker is a member: only a settlement brings the job back.
            self._settle_abandoned(run, station)
        self._zombies.add(task)
        if len(self._zombies) <= self._slots.concurrency:
            self._running.pop(task)
            self._free(run)

    def _settle_abandoned(self, run: Run, station: Station) -> None:
        if (outcome := decide(run, asyncio.CancelledError())) is not None:
            station.settler.submit(run, outcome)

    def let_go(self, run: Run) -> None:
        """Renew the run's lease no more."""
        if run.task is not None and (entry := self._running.get(run.task)) is not None:
            entry[1].release(run)

    # --- all of them -------------------------------------------------------------------------------------------

    async def drain(self, grace: float, hurried: asyncio.Event) -> None:
        """Let the running jobs end within `grace` seconds, or until `hurried`; cancel those that do not."""
        await self.until_idle(grace, hurried)
        for run, _ in list(self._running.values()):
            self.cut(run, Cut.SHUTDOWN)
        await self.until_idle(self._cancel_grace + 0.5, hurried)

    async def until_idle(self, timeout: float | None, hurried: asyncio.Event) -> None:
        """Wait for the running jobs, at most `timeout` seconds, or until `hurried`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while running := [
            task for task, (run, _) in self._running.items() if not (run.over and task in self._zombies)
        ]:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            if await watch(running, left, hurried if timeout else None):
                return

    # --- for people --------------------------------------------------------------------------------------------

    def shown(self) -> Mapping[str, Mapping[str, Any]]:
        """The running jobs by id, for the worker's report."""
        return {run.claim.id: _shown(run) for run, _ in self._running.values()}

    def describe(self, task: asyncio.Task[Any] | None) -> str:
        """What a task is, in the words of a log line."""
        entry = self._running.get(task) if task is not None else None
        if entry is None:
            return "code outside any job"
        header = entry[0].header
        return f"job {header.name if header else ''} {entry[0].claim.id}"


def _lets_others_go(run: Run) -> bool:
    """Settling it makes another job ready, so that it must be settled before the slot is claimed for.

    Any other slot is claimed for first: the store then settles while the next job runs already.
    """
    header = run.header
    return header is not None and (header.overlap is not None or header.chain is not None)


def _shown(run: Run) -> dict[str, Any]:
    header = run.header
    return {
        "name": header.name if header else "",
        "queue": run.claim.queue,
        "attempt": run.claim.attempt,
        "elapsed": round(run.duration, 3),
        "progress": dict(run.context.progressed) if run.context else {},
    }
