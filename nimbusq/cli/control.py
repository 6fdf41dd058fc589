"""``nimbusq jobs`` and ``nimbusq queues``: looking at and steering what waits and runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nimbusq.cli import exits
from nimbusq.cli.session import AppOption, JsonOption, UrlOption, confirm, fail, open_manager, run

jobs = typer.Typer(help="Single jobs: list, show, cancel, explain, pause, resume.", no_args_is_help=True)
queues = typer.Typer(help="Queues: list, pause, resume, clear.", no_args_is_help=True)

_COLUMNS = {
    "id": "job",
    "name": "name",
    "queue": "queue",
    "state": "state",
    "attempt": "run",
    "run_at": "due",
}


@jobs.command("list")
def list_jobs(
    app: AppOption = None,
    url: UrlOption = None,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.")] = None,
    state: Annotated[str | None, typer.Option(help="delayed, ready, leased or paused.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    cursor: Annotated[str, typer.Option(help="Where the page before ended.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Live jobs."""
    if state not in (None, "delayed", "ready", "leased", "paused"):
        fail(exits.USAGE, f"--state {state!r}: use delayed, ready, leased or paused.")

    async def main() -> tuple[list[Any], str]:
        manager = await open_manager(app, url)
        store = manager.require("jobs", "listing jobs")
        views, following = await store.list(queue=queue, state=state, cursor=cursor, limit=limit)
        await manager.aclose()
        return list(views), following

    from nimbusq.cli.output import show

    views, following = run(main)
    show(views, _COLUMNS, as_json=as_json, empty="no jobs")
    if following:
        typer.echo(f"more: --cursor {following}", err=True)


@jobs.command("show")
def show_job(job_id: str, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """One job, live or ended."""

    async def main() -> Any:
        manager = await open_manager(app, url)
        view = await manager.require("jobs", "looking up jobs").get(job_id)
        await manager.aclose()
        return view

    from nimbusq.cli.output import show

    view = run(main)
    if view is None:
        fail(exits.NOT_FOUND, f"the store knows no job {job_id}.")
    show([view], {**_COLUMNS, "error": "error"}, as_json=as_json, empty="")


@jobs.command()
def explain(job_id: str, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Every gate that a job waits behind."""

    async def main() -> Any:
        from nimbusq.control import explain as explained

        manager = await open_manager(app, url)
        explanation = await explained(job_id, manager=manager)
        await manager.aclose()
        return explanation

    from nimbusq.cli.output import show

    explanation = run(main)
    if not as_json:
        typer.echo(f"job {job_id} is {explanation.state}")
    show(explanation.gates, {"gate": "gate", "text": "why"}, as_json=as_json, empty="nothing holds it back")


@jobs.command()
def cancel(job_ids: list[str], app: AppOption = None, url: UrlOption = None) -> None:
    """Cancel jobs: queued ones at once, running ones within a third of their lease."""

    async def main() -> list[str]:
        from nimbusq.receipt import cancel as cancel_job

        manager = await open_manager(app, url)
        missed = [job_id for job_id in job_ids if not await cancel_job(manager, job_id)]
        await manager.aclose()
        return missed

    missed = run(main)
    typer.echo(f"{len(job_ids) - len(missed)} cancelled")
    for job_id in missed:
        typer.echo(f"{job_id}: unknown, or has ended", err=True)
    if missed:
        raise typer.Exit(exits.NOT_FOUND if len(job_ids) == 1 else exits.PARTLY)


def _switch(verb: str, need: str, target: str, app: str | None, url: str | None) -> None:
    async def main() -> bool:
        manager = await open_manager(app, url)
        changed = await getattr(manager.require("jobs", need), verb)(target)
        await manager.aclose()
        return bool(changed)

    done = verb.partition("_")[0].rstrip("e") + "ed"
    typer.echo(f"{target} {done}" if run(main) else f"{target}: nothing to change")


@jobs.command("pause")
def pause_job(job_id: str, app: AppOption = None, url: UrlOption = None) -> None:
    """A queued job is not started until it is resumed; it keeps its unique slot."""
    _switch("pause", "pausing jobs", job_id, app, url)


@jobs.command("resume")
def resume_job(job_id: str, app: AppOption = None, url: UrlOption = None) -> None:
    """Let a paused job run."""
    _switch("resume", "pausing jobs", job_id, app, url)


@queues.command("pause")
def pause_queue(queue: str, app: AppOption = None, url: UrlOption = None) -> None:
    """No worker starts jobs of the queue until it is resumed; sends go on."""
    _switch("pause_queue", "pausing queues", queue, app, url)


@queues.command("resume")
def resume_queue(queue: str, app: AppOption = None, url: UrlOption = None) -> None:
    """Let the queue's jobs run."""
    _switch("resume_queue", "pausing queues", queue, app, url)


@queues.command("clear")
def clear_queue(
    queue: str,
    app: AppOption = None,
    url: UrlOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Cancel everything that waits in the queue; what runs goes on."""
    confirm(f"Cancel all jobs that wait in {queue}?", yes)

    async def main() -> int:
        from nimbusq.clear import clear

        manager = await open_manager(app, url)
        cancelled = await clear(queue, manager=manager)
        await manager.aclose()
        return cancelled

    typer.echo(f"{run(main)} cancelled")


@queues.command("list")
def list_queues(
    names: Annotated[
        list[str] | None, typer.Argument(help="Queues besides those of registered jobs.")
    ] = None,
    app: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Queues by state, and whether they are paused."""

    async def main() -> list[dict[str, Any]]:
        from nimbusq.cli.output import to_plain

        manager = await open_manager(app, url)
        wanted = sorted({"default", *(names or ()), *(job.options.queue for job in manager.registry)})
        paused = set(await manager.stores.jobs.paused_queues()) if manager.stores.jobs else set()
        depths = await manager.depths(wanted)
        await manager.aclose()
        return [{**to_plain(depth), "paused": depth.queue in paused} for depth in depths]

    from nimbusq.cli.output import show

    columns = {
        "queue": "queue",
        "pending": "pending",
        "delayed": "delayed",
        "running": "running",
        "paused": "paused",
    }
    show(run(main), columns, as_json=as_json, empty="no queues")
