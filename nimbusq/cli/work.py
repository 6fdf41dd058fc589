"""``nimbusq work``: a worker process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from nimbusq.cli import exits
from nimbusq.cli.session import AppOption, UrlOption, fail, open_manager, run

if TYPE_CHECKING:
    from nimbusq.manager import Manager
    from nimbusq.worker import Worker


def work(
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            help="Queues in order of preference; mail:5 fills at most 5 slots. [default: default]"
        ),
    ] = None,
    app: AppOption = None,
    url: UrlOption = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, envvar="NIMBUSQ_CONCURRENCY", help="Jobs at once.")
    ] = 10,
    lease: Annotated[
        float | None,
        typer.Option(
            envvar="NIMBUSQ_LEASE_SECONDS", help="Seconds after which a dead worker's job goes to another."
        ),
    ] = None,
    shutdown_timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            envvar="NIMBUSQ_SHUTDOWN_TIMEOUT",
            help="Seconds that running jobs may go on. [default: 25]",
        ),
    ] = None,
    burst: Annotated[bool, typer.Option(help="Work until the queues are empty, then exit.")] = False,
    max_time: Annotated[float | None, typer.Option(min=0, help="Stop after that many seconds.")] = None,
    name: Annotated[str | None, typer.Option(envvar="NIMBUSQ_WORKER_NAME", help="The worker's id.")] = None,
    log_level: Annotated[
        str, typer.Option(envvar="NIMBUSQ_LOG_LEVEL", help="debug, info, warning or error.")
    ] = "info",
) -> None:
    """Run jobs until stopped. TERM or Ctrl-C drains; a second one cancels what runs; a third ends at once."""
    if lease is not None and lease <= 0:
        fail(exits.USAGE, "--lease takes seconds, more than 0.")
    _configure_logging(log_level)

    async def main() -> None:
        from nimbusq.worker import Worker
        from nimbusq.worker.collector import tune_collector

        manager = await open_manager(app, url)
        if logging.getLogger("nimbusq.job").isEnabledFor(logging.ERROR):
            from nimbusq.observe.logs import LogObserver

            manager.observers.add(LogObserver())
        worker = Worker(
            manager,
            queues or ["default"],
            concurrency=concurrency,
            lease=lease,
            grace=shutdown_timeout,
            name=name,
            on_dead=_end_stalled,
        )
        _banner(manager, worker)
        tune_collector()
        await _work(worker, burst=burst, max_time=max_time)
        if worker.abandoned:
            _leave_behind(worker)
        await manager.aclose()

    run(main)


async def _work(worker: Worker, *, burst: bool, max_time: float | None) -> None:
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        if signals >= 3:
            os._exit(exits.FORCED)
        _say(
            f"draining: {worker.running} running, up to {worker.grace:g} s (again to cancel them)"
            if signals == 1
            else "cancelling what still runs (again to end at once)"
        )
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    timer = loop.call_later(max_time, worker.stop) if max_time is not None else None
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())
            if burst:
                group.create_task(_stop_when_empty(worker))
            await running
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        if timer is not None:
            timer.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    _say(f"stopped: {_totals(worker)}, up {time.monotonic() - started:.1f} s")


async def _stop_when_empty(worker: Worker) -> None:
    """Burst mode: nothing is due, delayed jobs do not count, and nothing runs."""
    while True:
        await asyncio.sleep(0.2)
        depths = await worker.manager.depths(list(worker.queues))
        if not worker.running and not any(depth.pending or depth.running for depth in depths):
            worker.stop()
            return


def _totals(worker: Worker) -> str:
    totals = {"processed": 0, "failed": 0, "retried": 0, "released": 0}
    for counts in worker.counters.values():
        for event in totals:
            totals[event] += counts.get(event, 0)
    return ", ".join(f"{count:,} {event}" for event, count in totals.items())


def _banner(manager: Manager, worker: Worker) -> None:
    from nimbusq.loading import redacted
    from nimbusq.worker.report import installed_version

    queues = " ".join(f"{queue}:{limit or worker.concurrency}" for queue, limit in worker.queues.items())
    names = manager.registry.names
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    _say(
        f"nimbusq {installed_version()} | {redacted(manager.settings.url)} | queues {queues} | worker {worker.id}"
    )
    _say(f"jobs ({len(names)}): {shown or 'none - is your module named with --app?'}")
    unserved = sorted({job.options.queue for job in manager.registry} - set(worker.queues))
    if unserved:
        _say(f"note: this worker does not serve {', '.join(unserved)}, which registered jobs use")


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _configure_logging(level: str) -> None:
    numeric = logging.getLevelNamesMapping().get(level.upper())
    if numeric is None:
        fail(exits.USAGE, f"--log-level {level!r}: use debug, info, warning or error.")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("nimbusq")
    logger.handlers[:] = [handler]
    logger.setLevel(numeric)
    logger.propagate = False


def _end_stalled(_silence: float) -> None:
    """The loop cannot be asked to stop: end the process, so that a supervisor starts a live one."""
    _end_now(exits.STALLED)


def _leave_behind(worker: Worker) -> NoReturn:
    """Handlers that ignore their cancellation would keep the interpreter from ending."""
    _say(f"{worker.abandoned} handlers ignored their cancellation; their jobs return with their leases")
    _end_now(exits.FAILED)


def _end_now(code: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
