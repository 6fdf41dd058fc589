"""The Worker: claims jobs, runs them in its slots, keeps their leases, settles them, and stops in good order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final

from nimbusq.driver import Adapter, Claimed, WorkerReport
from nimbusq.errors import InvalidOption
from nimbusq.ids import new_id
from nimbusq.limit import RateLimit
from nimbusq.manager import Manager, get_manager
from nimbusq.names import check_name
from nimbusq.retry import seconds
from nimbusq.worker.aftermath import Aftermath
from nimbusq.worker.processes import Processes
from nimbusq.worker.queues import Queues, parse_queues
from nimbusq.worker.rates import LocalLimiter, RateGate
from nimbusq.worker.report import Reporter, host_and_pid, installed_version
from nimbusq.worker.run import Surroundings
from nimbusq.worker.runs import Runs
from nimbusq.worker.shutdown import Shutdown
from nimbusq.worker.slots import Slots
from nimbusq.worker.stall import StallWatch
from nimbusq.worker.station import Station

log = logging.getLogger("nimbusq.worker")

SETTLING_PATIENCE: Final = 10.0
"""Seconds that a stopping worker gives its last settlements."""


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
        self._runs = Runs(self._slots, self._aftermath, cancel_grace=self.manager.settings.cancel_grace)
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
            claimed = [await station.claims.once() for station in self._stations if self._slots.free]
            await self._runs.until_idle(None, self._shutdown.hurried)
        finally:
            await self._runs.drain(0.0, self._shutdown.hurried)
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
        return self._runs.abandoned

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
        return RateGate(shared, self._own_limiter, per_process, self.manager.clock)

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
                let_go=self._runs.let_go,
            ),
            gate=self._gate(adapter),
            shared=len(self.manager.route.adapters) > 1,
            take=self._runs.begin,
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
            running=self._runs.shown(),
            counters=self.counters,
            names=self.manager.registry.names,
            loop_lag=self._watch.lag if self._watch is not None else 0.0,
        )

    async def _reclaimed(self, claimed: Claimed) -> None:
        await self._aftermath.reclaimed(list(claimed.lost))

    def _call_in_thread(self, call: Callable[[], Any]) -> Future[Any]:
        assert self._threads is not None, "opened before any run begins"
        return self._threads.submit(copy_context().run, call)

    # --- start and end -----------------------------------------------------------------------------------------

    def _start(self) -> list[asyncio.Task[None]]:
        """The tasks that this worker owns outside any group, since nobody may cancel them: they end by an event."""
        loop = asyncio.get_running_loop()
        self._watch = StallWatch(
            loop,
            limit=self.manager.settings.stall_limit,
            describe=self._runs.describe,
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
        self._runs.open()
        self._threads = ThreadPoolExecutor(2 * self.concurrency, thread_name_prefix="nimbusq-job")
        for station in self._stations:
            station.start(self._crashed)

    async def _finish(self, owned: list[asyncio.Task[None]]) -> None:
        self._shutdown.begin()
        self._claim_no_more()
        settling, claiming = owned[: len(self._stations)], owned[len(self._stations) :]
        await asyncio.wait(claiming)
        await self._runs.drain(self.grace, self._shutdown.hurried)
        await self._close_stations(settling)
        if self._watch is not None:
            self._watch.stop()
        if (reporter := self._reporter()) is not None:
            await reporter.leave()

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
