"""``nimbusq migrate``: what a driver needs before the first job: tables, topics, queues."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nimbusq.cli import exits
from nimbusq.cli.session import AppOption, JsonOption, UrlOption, confirm, fail, open_manager, run

migrate = typer.Typer(help="Create and update tables, topics and queues.", no_args_is_help=True)

PlanOption = Annotated[bool, typer.Option("--plan", help="Print what would be done, do nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@migrate.command()
def up(
    app: AppOption = None,
    url: UrlOption = None,
    queue: Annotated[list[str] | None, typer.Option(help="Queues besides those of registered jobs.")] = None,
    to: Annotated[int | None, typer.Option(help="Stop at this version.")] = None,
    plan: PlanOption = False,
) -> None:
    """Bring everything up to date. Does nothing where there is nothing to do; many may run it at once."""

    async def main() -> None:
        manager = await open_manager(app, url, connect=False)
        queues = sorted({"default", *(queue or ()), *(job.options.queue for job in manager.registry)})
        for adapter in manager.route.adapters:
            migrations = getattr(adapter, "migrations", None)
            if migrations is None:
                if not plan:
                    await adapter.setup(queues)
                typer.echo(
                    f"{adapter.capabilities.driver}: {', '.join(queues)} {'would be ' if plan else ''}ready"
                )
            elif plan or to is not None:
                await _steps(adapter, to, plan)
            else:
                await adapter.setup(queues)
                typer.echo(f"{adapter.capabilities.driver}: schema {migrations.latest} is in place")

    run(main)


async def _steps(adapter: Any, to: int | None, plan: bool) -> None:
    async with _connected(adapter) as migrations:
        if plan:
            for step in await migrations.plan(to):
                typer.echo(f"-- {step.direction} {step.version:03} {step.name}\n{step.sql}")
        else:
            for done in await migrations.up(to):
                typer.echo(f"applied {done.version:03} {done.name}")


@migrate.command()
def down(
    to: Annotated[int, typer.Option(help="The version to return to; 0 removes every table with its jobs.")],
    app: AppOption = None,
    url: UrlOption = None,
    plan: PlanOption = False,
    yes: YesOption = False,
) -> None:
    """Undo migrations."""
    if not plan:
        confirm(f"Return to schema version {to}? What later versions store is lost.", yes)

    async def main() -> None:
        adapter = await _database(app, url)
        async with _connected(adapter) as migrations:
            steps = await (migrations.plan(to) if plan else migrations.down(to))
            for step in steps:
                typer.echo(f"-- {step.direction} {step.version:03} {step.name}\n{step.sql}" if plan
                           else f"undone {step.version:03} {step.name}")  # fmt: skip

    run(main)


@migrate.command()
def status(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Which migrations are applied."""

    async def main() -> list[Any]:
        async with _connected(await _database(app, url)) as migrations:
            return list(await migrations.status())

    from nimbusq.cli.output import show

    columns = {"version": "version", "name": "name", "state": "state", "applied_at": "applied"}
    show(run(main), columns, as_json=as_json, empty="no migrations")


@migrate.command()
def check(app: AppOption = None, url: UrlOption = None) -> None:
    """Exit code 0 when the schema is as this version needs it, 8 when `migrate up` is due."""

    async def main() -> None:
        async with _connected(await _database(app, url)) as migrations:
            await migrations.check()

    run(main)
    typer.echo("the schema is up to date")


@migrate.command()
def sql(
    dialect: Annotated[str, typer.Argument(help="sqlite, postgres or mysql.")],
    since: Annotated[int, typer.Option(help="The version that you have.")] = 0,
    prefix: Annotated[str, typer.Option(envvar="NIMBUSQ_PREFIX", help="Prefix of the tables.")] = "nimbusq",
) -> None:
    """Print the raw SQL, without a connection, for those who run their own migrations (Alembic, Django)."""
    from nimbusq.loading import driver_class

    if dialect not in ("sqlite", "postgres", "mysql"):
        fail(exits.USAGE, f"{dialect!r} is no dialect: use sqlite, postgres or mysql.")
    typer.echo(driver_class("database").schema_sql(dialect, since=since, prefix=prefix))


async def _database(app: str | None, url: str | None) -> Any:
    """The adapter that has migrations: the carrier, or the store beside it."""
    manager = await open_manager(app, url, connect=False)
    found = next((adapter for adapter in manager.route.adapters if hasattr(adapter, "migrations")), None)
    if found is not None:
        return found
    return fail(exits.USAGE, f"the {manager.adapter.capabilities.driver} driver has no schema to migrate.")


def _connected(adapter: Any) -> Any:
    """The adapter's migrations on a connection of their own, whatever state the schema is in."""
    return adapter.migrations.connected()
