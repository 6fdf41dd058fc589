"""The command line: one file per command group, each importing what it needs only when it runs."""

from __future__ import annotations

import typer

from nimbusq.cli.batches import batches
from nimbusq.cli.control import jobs, queues
from nimbusq.cli.demo import demo
from nimbusq.cli.failed import failed
from nimbusq.cli.inspect import doctor, drivers, status, version
from nimbusq.cli.migrate import migrate
from nimbusq.cli.schedules import schedule
from nimbusq.cli.work import work

cli = typer.Typer(
    name="nimbusq",
    help="An asyncio-native job queue: workers, schemas, failed jobs, schedules.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
cli.command()(work)
cli.command()(demo)
cli.command()(status)
cli.command()(drivers)
cli.command()(doctor)
cli.command()(version)
cli.add_typer(migrate, name="migrate")
cli.add_typer(failed, name="failed")
cli.add_typer(jobs, name="jobs")
cli.add_typer(queues, name="queues")
cli.add_typer(batches, name="batches")
cli.add_typer(schedule, name="schedule")


def main() -> None:
    """The console script."""
    cli()
