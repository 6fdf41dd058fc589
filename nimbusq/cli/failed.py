"""``nimbusq failed``: jobs that failed for good."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nimbusq.cli import exits
from nimbusq.cli.session import AppOption, JsonOption, UrlOption, confirm, fail, open_manager, run

failed = typer.Typer(help="Jobs that failed for good: look, retry, forget.", no_args_is_help=True)

QueueOption = Annotated[str | None, typer.Option("--queue", help="Only of this queue.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@failed.command("list")
def list_(
    app: AppOption = None,
    url: UrlOption = None,
    queue: QueueOption = None,
    group: Annotated[str | None, typer.Option(help="Only of this fingerprint.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    cursor: Annotated[str, typer.Option(help="Where the page before ended.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Newest first."""

    async def main() -> tuple[list[Any], str]:
        manager = await open_manager(app, url)
        store = manager.require("failed", "a failed store")
        records, following = await store.page(cursor=cursor, limit=limit, queue=queue, fingerprint=group)
        await manager.aclose()
        return list(records), following

    from nimbusq.cli.output import show

    records, following = run(main)
    columns = {
        "id": "job",
        "name": "name",
        "queue": "queue",
        "attempts": "runs",
        "failed_at": "failed",
        "error": "error",
    }
    show(records, columns, as_json=as_json, empty="no failed jobs")
    if following:
        typer.echo(f"more: --cursor {following}", err=True)


@failed.command()
def groups(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Failures by their cause."""

    async def main() -> list[Any]:
        manager = await open_manager(app, url)
        found = list(await manager.require("failed", "a failed store").groups())
        await manager.aclose()
        return found

    from nimbusq.cli.output import show

    columns = {
        "fingerprint": "group",
        "name": "job",
        "kind": "error",
        "count": "jobs",
        "last_at": "last",
        "error": "text",
    }
    show(run(main), columns, as_json=as_json, empty="no failed jobs")


@failed.command()
def show(job_id: str, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """One failed job with its traceback."""

    async def main() -> Any:
        manager = await open_manager(app, url)
        record = await manager.require("failed", "a failed store").get(job_id)
        await manager.aclose()
        return record

    from nimbusq.cli.output import clean
    from nimbusq.cli.output import show as show_rows

    record = run(main)
    if record is None:
        fail(exits.NOT_FOUND, f"no failed job has the id {job_id}.")
    if as_json:
        show_rows([record], {}, as_json=True, empty="")
        return
    for name in ("id", "name", "queue", "attempts", "max_attempts", "kind", "error", "fingerprint"):
        typer.echo(f"{name:>13}  {clean(str(getattr(record, name)))}")
    typer.echo(f"{'job':>13}  {clean(record.wire.decode('utf-8', 'backslashreplace'), 2000)}")
    typer.echo(clean(record.traceback, 20_000))


@failed.command()
def retry(
    job_ids: Annotated[list[str] | None, typer.Argument(help="Ids of failed jobs.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    group: Annotated[str | None, typer.Option(help="All of this fingerprint.")] = None,
    queue: QueueOption = None,
    app: AppOption = None,
    url: UrlOption = None,
) -> None:
    """Put failed jobs back on their queues, with their ids; attempts start anew."""
    if not (job_ids or every or group or queue):
        fail(exits.USAGE, "name job ids, or say --all, --group or --queue.")

    async def main() -> tuple[int, list[str]]:
        from nimbusq.failed import retry as retry_jobs
        from nimbusq.failed import retry_matching

        manager = await open_manager(app, url)
        result = (
            await retry_jobs(job_ids, manager=manager)
            if job_ids
            else await retry_matching(queue=queue, fingerprint=group, manager=manager)
        )
        await manager.aclose()
        missing = [f"{job_id}: no such failed job" for job_id in result.missing]
        taken = [
            f"{job_id}: job {holder} is active under its unique key"
            for job_id, holder in result.conflicts.items()
        ]
        return result.retried, missing + taken

    retried, problems = run(main)
    typer.echo(f"{retried} put back")
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        single = len(job_ids or ()) == 1
        conflict = "active under" in problems[0]
        raise typer.Exit((exits.CONFLICT if conflict else exits.NOT_FOUND) if single else exits.PARTLY)


@failed.command()
def forget(
    job_ids: Annotated[list[str] | None, typer.Argument(help="Ids of failed jobs.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    queue: QueueOption = None,
    app: AppOption = None,
    url: UrlOption = None,
    yes: YesOption = False,
) -> None:
    """Delete failed jobs."""
    if not (job_ids or every or queue):
        fail(exits.USAGE, "name job ids, or say --all or --queue.")
    if not job_ids:
        confirm(f"Forget all failed jobs{f' of {queue}' if queue else ''}?", yes)

    async def main() -> int:
        manager = await open_manager(app, url)
        store = manager.require("failed", "a failed store")
        gone = (
            sum([await store.forget(i) for i in job_ids]) if job_ids else await store.forget_all(queue=queue)
        )
        await manager.aclose()
        return int(gone)

    gone = run(main)
    typer.echo(f"{gone} forgotten")
    if job_ids and gone < len(job_ids):
        raise typer.Exit(exits.NOT_FOUND if len(job_ids) == 1 else exits.PARTLY)


@failed.command()
def prune(
    hours: Annotated[float, typer.Option(min=0, help="Older than that many hours.")] = 24 * 7,
    app: AppOption = None,
    url: UrlOption = None,
    yes: YesOption = False,
) -> None:
    """Delete failed jobs that are older than a week, or than --hours."""
    confirm(f"Forget failed jobs older than {hours:g} hours?", yes)

    async def main() -> int:
        manager = await open_manager(app, url)
        gone = await manager.require("failed", "a failed store").forget_all(older_than=hours * 3600)
        await manager.aclose()
        return int(gone)

    typer.echo(f"{run(main)} forgotten")
