"""The Worker: claims jobs, runs them in its slots, keeps their leases, settles them, and stops in good order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any, Final

from nimbusq.driver import (
    Adapter,
    Claim,
    Claimed,
    Done,
    Outcome,
    Settled,
    Settlement,
    SettleStatus,
    WorkerReport,
)
from nimbusq.envelope import check_name
from nimbusq.errors import ConfigError, InvalidOption
from nimbusq.ids import new_id
from nimbusq.limit import RateLimit
from nimbusq.manager import Manager, get_manager
from nimbusq.retry import seconds
from nimbusq.worker.aftermath import Aftermath
from nimbusq.worker.execute import decide, ended_unrun, execute, time_limit
from nimbusq.worker.processes import Processes
from nimbusq.worker.rates import LocalLimiter, RateGate
from nimbusq.worker.report import Reporter, host_and_pid, installed_version
from nimbusq.worker.run import Cut, Run, Surroundings
from nimbusq.worker.shutdown import Shutdown, watch
from nimbusq.worker.slots import Slots
from nimbusq.worker.stall import StallWatch
from nimbusq.worker.station import Station

log = logging.getLogger("nimbusq.worker")

SETTLING_PATIENCE: Final = 10.0
"""Seconds that a stopping worker gives its last settlements."""

Queues = str | Sequence[str] | Mapping[str, int | None]


class Worker:
    """Runs jobs of some queues: ``await Worker(manager, {"mail": 5, "default": None}, concurrency=10).run()``.

    queues: names in order of preference; a number is the most slots of this worker that the queue may fill. The
    texts "default" and "mail:5" do as well. concurrency: how many jobs run at once. lease: seconds; None takes
    the settings'. grace: how long running jobs may go on after `stop`; None takes the settings'.
    on_dead: called from another thread when the event loop has been blocked for longer than the settings allow;
    None stops renewing leases and reports.
    """

    def __init__(
        self,
        manager: Manager | None = None,
        queues: Queues = "default",
        *,
        concurrency: int = 10,
        lease: float | None = None,
        grace: float | None = None,
        name: str | None = None,
        on_dead: Callable[[float], None] | None = None,
    ) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise InvalidOption(f"concurrency is an integer of 1 or more, not {concurrency!r}.")
        self.manager = manager or get_manager()
        self.id = check_name("worker", name) if name else new_id()
        self.queues = parse_queues(queues)
        self.concurrency = concurrency
        self.grace = self.manager.settings.shutdown_timeout if grace is None else grace
        self._lease = None if lease is None else seconds(lease, "lease", positive=True)
        self._on_dead = on_dead
        self._slots = Slots(concurrency, self.queues, self._rates())
        self._processes = Processes()
        self._own_limiter = LocalLimiter(self.manager.clock)
        self._aftermath = Aftermath(self.manager.observers)
        self._threads: ThreadPoolExecutor | None = None
        """As many threads again as slots, since an abandoned handler keeps its thread when it has lost its slot."""
        self._runs: dict[asyncio.Task[None], tuple[Run, Station]] = {}
        self._zombies: set[asyncio.Task[None]] = set()
        self._stations = [self._station(adapter) for adapter in self.manager.route.adapters]
        self._shutdown = Shutdown()
        self._watch: StallWatch | None = None
        self._started_at = time.time()
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- what people call --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop`, or until the calling task is cancelled; then end in good order (see `stop`).

        Raises what broke the worker: a bug in a driver, a keeper that died. An outage of the backend does not.
        """
        self._loop = asyncio.get_running_loop()
        owned = self._start()
        try:
            async with asyncio.TaskGroup() as side:
                reporting = asyncio.Event()
                if (reporter := self._reporter()) is not None:
                    side.create_task(reporter.run(reporting), name="nimbusq-report")
                await self._shutdown.asked(owned)
                reporting.set()
        except BaseExceptionGroup as group:  # the side task that died is what the caller must hear of
            raise group.exceptions[0] from None
        finally:
            await self._finish(owned)
        if self._shutdown.error is not None:
            raise self._shutdown.error
        for task in owned:
            if not task.cancelled():
                task.result()

    async def run_once(self) -> int:
        """Run what is due now, at most `concurrency` jobs, wait for their end and settle them; how many it was.

        Cancelled, it puts back what runs and what it has claimed, without an attempt.
        """
        self._loop = asyncio.get_running_loop()
        self._open()
        settling = [asyncio.create_task(station.settler.run()) for station in self._stations]
        try:
            claimed = [await station.claims.once(wait=0.0) for station in self._stations if self._slots.free]
            await self._until_idle(None)
        finally:
            await self._drain(0.0)
            await self._close_stations(settling)
        return sum(claimed)

    def stop(self) -> None:
        """Claim no more; let running jobs go on for `grace` seconds, then cancel them and put them back without
        an attempt. A second call cancels them now. Safe to call from a signal handler of the loop."""
        self._shutdown.ask()
        self._claim_no_more()

    @property
    def running(self) -> int:
        """Jobs in its slots."""
        return len(self._runs)

    @property
    def abandoned(self) -> int:
        """Handlers that ignored their cancellation and still run, outside any slot."""
        return len(self._zombies)

    @property
    def ready(self) -> bool:
        """Every store answers, and the loop is not blocked.

        An idle worker claims every few seconds; one without a free slot only every third of its lease.
        """
        now = time.monotonic()
        alive = self._watch is None or self._watch.lag < 5.0
        return alive and all(
            now - station.claims.claimed_at < station.claims.silence for station in self._stations
        )

    @property
    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """Per queue: processed, failed, retried, released, cancelled, reclaimed, stale, hook_errors."""
        return {queue: dict(counts) for queue, counts in self._aftermath.counters.items()}

    # --- parts -------------------------------------------------------------------------------------------------

    def _rates(self) -> dict[str, RateLimit]:
        settings = self.manager.settings
        rates = {queue: limit for queue in self.queues if (limit := settings.rate_of(queue)) is not None}
        if any(not limit.per_process for limit in rates.values()):
            self.manager.require("limiter", "rate limits shared by all workers")
        return rates

    def _gate(self, adapter: Adapter) -> RateGate | None:
        """Who spends the rates that the adapter does not spend itself; None where there are none."""
        rates = self._rates()
        per_process = frozenset(queue for queue, limit in rates.items() if limit.per_process)
        if not rates or (adapter.capabilities.atomic and not per_process):
            return None
        shared = None if adapter.capabilities.atomic else self.manager.stores.limiter
        return RateGate(shared, self._own_limiter, per_process)

    def _station(self, adapter: Adapter) -> Station:
        lease = self._lease or self.manager.settings.lease_for(adapter.capabilities.driver)
        if adapter.capabilities.max_lease is not None:
            lease = min(lease, adapter.capabilities.max_lease)
        beside = self.manager.store is not None and adapter is self.manager.adapter
        return Station.build(
            adapter,
            self._slots,
            self._aftermath,
            lease=lease,
            records=self.manager.stores if beside else None,
            surroundings=Surroundings(
                manager=self.manager,
                adapter=adapter,
                worker_id=self.id,
                call_in_thread=self._call_in_thread,
                processes=self._processes,
                let_go=self._let_go,
            ),
            gate=self._gate(adapter),
            shared=len(self.manager.route.adapters) > 1,
            take=self._take,
            reclaimed=self._reclaimed,
        )

    def _reporter(self) -> Reporter | None:
        workers = self.manager.stores.workers
        return Reporter(workers, self.report) if workers is not None else None

    def report(self) -> WorkerReport:
        """What the worker tells the workers store."""
        host, pid = host_and_pid()
        return WorkerReport(
            id=self.id,
            host=host,
            pid=pid,
            queues=tuple(self.queues),
            concurrency=self.concurrency,
            started_at=self._started_at,
            version=installed_version(),
            running={run.claim.id: _shown(run) for run, _ in self._runs.values()},
            counters=self.counters,
            names=self.manager.registry.names,
            loop_lag=self._watch.lag if self._watch is not None else 0.0,
        )

    # --- one run -----------------------------------------------------------------------------------------------

    def _take(self, station: Station, claim: Claim, sent_at: float) -> None:
        run = Run(claim, station.surroundings)
        if claim.ending is not None:
            station.settler.submit(run, ended_unrun(run))
            return
        self._slots.take(claim.queue)
        station.keep(run, sent_at, self._call_soon)
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._run(run, station), context=Context())
        run.task = task
        self._runs[task] = run, station
        task.add_done_callback(self._forget)
        self._limit(run)

    async def _run(self, run: Run, station: Station) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await execute(run)
        finally:
            station.release(run)
        if outcome is not None:
            station.settler.submit(run, outcome)
        elif run.cut_by is Cut.LEASE_LOST:
            await self._aftermath.cut_off(run.claim)
        elif run.context is not None and run.context.completed:
            settlement = Settlement(claim=run.claim, outcome=Done())
            await self._aftermath.settled(run, settlement, Settled(SettleStatus.SETTLED))

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._zombies.discard(task)
        entry = self._runs.pop(task, None)
        if entry is None:
            return
        run, station = entry
        self._slots.give_back(run.claim.queue)
        if task.cancelled() and run.end():  # before its first step, so that none of its code has run
            station.release(run)
            if (outcome := decide(run, asyncio.CancelledError())) is not None:
                station.settler.submit(run, outcome)

    def _limit(self, run: Run) -> None:
        """The time limit is kept by the loop's timer, so that a job without one costs nothing."""
        limit = time_limit(run)
        if limit is not None and self._loop is not None:
            run.timers.append(self._loop.call_later(limit, self._cut, run, Cut.TIMEOUT))

    def _cut(self, run: Run, reason: Cut) -> None:
        """Cancel the handler, and abandon it if it has not ended after the grace for cleaning up."""
        if run.over:
            return
        run.cut(reason)
        if self._loop is not None:
            grace = self.manager.settings.cancel_grace
            run.timers.append(self._loop.call_later(grace, self._abandon, run))

    def _abandon(self, run: Run) -> None:
        """The handler ignores its cancellation: stop renewing, so that the job returns with its lease, and free the
        slot, unless as many handlers as there are slots have been abandoned already."""
        task = run.task
        if task is None or task not in self._runs or not run.end():
            return
        log.error(
            "job %s ignored its cancellation (%s) for %g s and is abandoned; it returns with its lease",
            run.claim.id,
            run.cut_by.value if run.cut_by else "",
            self.manager.settings.cancel_grace,
            extra={"event": "abandoned", "job_id": run.claim.id},
        )
        self._runs[task][1].release(run)
        self._zombies.add(task)
        if len(self._zombies) <= self.concurrency:
            self._runs.pop(task)
            self._slots.give_back(run.claim.queue)

    def _let_go(self, run: Run) -> None:
        if run.task is not None and (entry := self._runs.get(run.task)) is not None:
            entry[1].release(run)

    async def _reclaimed(self, claimed: Claimed) -> None:
        await self._aftermath.reclaimed(list(claimed.lost))

    def _call_in_thread(self, call: Callable[[], Any]) -> Future[Any]:
        assert self._threads is not None, "opened before any run begins"
        return self._threads.submit(copy_context().run, call)

    def _call_soon(self, run: Run, reason: Cut) -> None:
        """From the keeper's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cut, run, reason)

    # --- start and end -----------------------------------------------------------------------------------------

    def _start(self) -> list[asyncio.Task[None]]:
        """The tasks that this worker owns outside any group, since nobody may cancel them: they end by an event."""
        loop = asyncio.get_running_loop()
        self._watch = StallWatch(
            loop,
            limit=self.manager.settings.stall_limit,
            describe=self._describe,
            on_dead=self._dead,
            on_alive=self._alive,
        )
        self._watch.start()
        self._open()
        settlers = [
            loop.create_task(station.settler.run(), name="nimbusq-settler") for station in self._stations
        ]
        claims = [loop.create_task(station.claims.run(), name="nimbusq-claims") for station in self._stations]
        return settlers + claims

    def _claim_no_more(self) -> None:
        for station in self._stations:
            station.claims.stop()

    def _open(self) -> None:
        self._threads = ThreadPoolExecutor(2 * self.concurrency, thread_name_prefix="nimbusq-job")
        for station in self._stations:
            station.start(self._crashed)

    async def _finish(self, owned: list[asyncio.Task[None]]) -> None:
        self._shutdown.begin()
        self._claim_no_more()
        settling, claiming = owned[: len(self._stations)], owned[len(self._stations) :]
        await asyncio.wait(claiming)
        await self._drain(self.grace)
        await self._close_stations(settling)
        if self._watch is not None:
            self._watch.stop()
        if (reporter := self._reporter()) is not None:
            await reporter.leave()

    async def _drain(self, grace: float) -> None:
        """Let the running jobs end within `grace` seconds; cancel those that do not."""
        await self._until_idle(grace)
        for run, _ in list(self._runs.values()):
            self._cut(run, Cut.SHUTDOWN)
        await self._until_idle(self.manager.settings.cancel_grace + 0.5)

    async def _until_idle(self, timeout: float | None) -> None:
        """Wait for the running jobs, at most `timeout` seconds, or until a second `stop`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while running := [
            task for task, (run, _) in self._runs.items() if not (run.over and task in self._zombies)
        ]:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            if await watch(running, left, self._shutdown.hurried if timeout else None):
                return

    async def _close_stations(self, settling: list[asyncio.Task[None]]) -> None:
        if self._aftermath.hooks:
            await asyncio.wait(self._aftermath.hooks, timeout=self.manager.settings.cancel_grace)
        for station in self._stations:
            station.settler.close()
        _, unsettled = await asyncio.wait(settling, timeout=SETTLING_PATIENCE)
        for task in unsettled:
            log.error("the last settlements could not be stored in %g s: those jobs return with their leases",
                      SETTLING_PATIENCE)  # fmt: skip
            task.cancel()
        if self._aftermath.hooks:
            await asyncio.wait(self._aftermath.hooks, timeout=self.manager.settings.cancel_grace)
        for station in self._stations:
            await station.aclose()
        await self._processes.aclose()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _crashed(self, error: BaseException) -> None:
        """From a keeper's thread: without a keeper this worker must not go on."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._shutdown.fail, error)

    def _dead(self, silence: float) -> None:
        """From the watch's thread: the loop has been blocked for too long, others must get its jobs."""
        log.critical("the event loop has been blocked for %.0f s: this worker counts as dead", silence)
        for station in self._stations:
            if station.keeper is not None:
                station.keeper.renewing = False
        if self._on_dead is not None:
            self._on_dead(silence)

    def _alive(self) -> None:
        """The loop answers again, and nobody has ended the process: its leases are worth something again."""
        for station in self._stations:
            if station.keeper is not None:
                station.keeper.renewing = True

    def _describe(self, task: asyncio.Task[Any] | None) -> str:
        entry = self._runs.get(task) if task is not None else None
        if entry is None:
            return "code outside any job"
        run = entry[0]
        header = run.header
        return f"job {header.name if header else ''} {run.claim.id}"


def _shown(run: Run) -> dict[str, Any]:
    header = run.header
    return {
        "name": header.name if header else "",
        "queue": run.claim.queue,
        "attempt": run.claim.attempt,
        "elapsed": round(run.duration, 3),
        "progress": dict(run.context.progressed) if run.context else {},
    }


def parse_queues(queues: Queues) -> dict[str, int | None]:
    """Names with their limits, in order. Raises InvalidName and ConfigError."""
    if isinstance(queues, Mapping):
        pairs = list(queues.items())
    else:
        texts = [queues] if isinstance(queues, str) else list(queues)
        pairs = [_parse_queue(text) for text in texts]
    if not pairs:
        raise ConfigError("a worker needs at least one queue.")
    for queue, limit in pairs:
        check_name("queue", queue)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise ConfigError(f"queue {queue}: the limit is an integer of 1 or more, not {limit!r}.")
    return dict(pairs)


def _parse_queue(text: str) -> tuple[str, int | None]:
    name, colon, limit = text.partition(":")
    if not colon:
        return name, None
    if not limit.isdecimal() or int(limit) < 1:
        raise ConfigError(f"queue {text!r}: after the colon stands how many slots it may fill, 1 or more.")
    return name, int(limit)
