"""``nimbusq schedule``: the scheduler of an application."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Annotated, Any

import typer

from nimbusq.cli import exits
from nimbusq.cli.session import AppOption, JsonOption, UrlOption, fail, load_app, open_manager, run

schedule = typer.Typer(help="Schedules: run, list, trigger, pause, resume, check.", no_args_is_help=True)


async def _scheduler(app: str | None, url: str | None) -> Any:
    """The Scheduler that the app names, or the only one in its module."""
    from nimbusq.schedule import Scheduler

    if not app:
        fail(exits.USAGE, "name the module with your Scheduler: --app module or module:attribute.")
    found = load_app(app)
    module = app.partition(":")[0]
    if not isinstance(found, Scheduler):
        ones = {value for value in vars(found).values() if isinstance(value, Scheduler)}
        if len(ones) != 1:
            fail(exits.CONFIG, f"{app} has {len(ones)} Schedulers: name one with --app {module}:attribute.")
        found = ones.pop()
    await open_manager(module, url)
    return found


@schedule.command("run")
def run_scheduler(app: AppOption = None, url: UrlOption = None) -> None:
    """Fire ticks until stopped. Several may run: each tick is queued once."""

    async def main() -> None:
        scheduler = await _scheduler(app, url)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, scheduler.stop)
        typer.echo(f"scheduler of {len(scheduler.entries)} schedules", err=True)
        await scheduler.run()
        await scheduler.manager.aclose()

    run(main)


@schedule.command("list")
def list_schedules(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Schedules with their last tick and next runs."""

    async def main() -> list[Any]:
        scheduler = await _scheduler(app, url)
        listed = await scheduler.list()
        await scheduler.manager.aclose()
        return list(listed)

    from nimbusq.cli.output import show

    listed = run(main)
    if as_json:
        show(listed, {}, as_json=True, empty="")
        return
    rows = [
        {"name": one.name, "when": one.spec.get("words", ""), "tz": one.spec.get("tz", ""), "paused": one.paused,
         "last_tick": one.last_tick, "next": one.next_runs[0] if one.next_runs else None}
        for one in listed
    ]  # fmt: skip
    columns = {
        "name": "schedule",
        "when": "when",
        "tz": "zone",
        "paused": "paused",
        "last_tick": "last",
        "next": "next",
    }
    show(rows, columns, as_json=False, empty="no schedules")


@schedule.command()
def trigger(name: str, app: AppOption = None, url: UrlOption = None) -> None:
    """Queue a schedule's job now, beside its ticks."""

    async def main() -> str:
        scheduler = await _scheduler(app, url)
        job_id = await scheduler.run_now(name)
        await scheduler.manager.aclose()
        return str(job_id)

    typer.echo(run(main))


@schedule.command()
def pause(name: str, app: AppOption = None, url: UrlOption = None) -> None:
    """No ticks until it is resumed."""
    _switch(name, True, app, url)


@schedule.command()
def resume(name: str, app: AppOption = None, url: UrlOption = None) -> None:
    """Let it fire again; what was missed meanwhile is not caught up."""
    _switch(name, False, app, url)


def _switch(name: str, paused: bool, app: str | None, url: str | None) -> None:
    async def main() -> None:
        scheduler = await _scheduler(app, url)
        await (scheduler.pause(name) if paused else scheduler.resume(name))
        await scheduler.manager.aclose()

    run(main)
    typer.echo(f"{name} {'paused' if paused else 'resumed'}")


@schedule.command()
def check(
    expression: str,
    tz: Annotated[str, typer.Option(help="IANA time zone.")] = "UTC",
    n: Annotated[int, typer.Option("-n", min=1, max=100, help="How many runs to show.")] = 5,
) -> None:
    """What a cron expression means, and its next runs."""
    import itertools
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from nimbusq.cron import Cron
    from nimbusq.errors import InvalidOption

    try:
        cron = Cron(expression, tz)
        typer.echo(cron.describe()["words"])
    except InvalidOption as error:
        fail(exits.USAGE, str(error))
    for tick in itertools.islice(cron.after(time.time()), n):
        typer.echo(datetime.fromtimestamp(tick, ZoneInfo(tz)).isoformat())
