"""Looking: ``status``, ``drivers``, ``doctor``, ``version``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nimbusq.cli import exits
from nimbusq.cli.session import AppOption, JsonOption, UrlOption, open_manager, run


def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(f"nimbusq {installed('nimbusq')}")


def drivers(as_json: JsonOption = False) -> None:
    """What each driver can do."""
    from nimbusq.cli.output import show
    from nimbusq.matrix import COLUMNS, rows

    show(rows(), COLUMNS, as_json=as_json, empty="no driver is installed")


def doctor(app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Check the backend and the application; exit code 1 when something is wrong."""

    async def main() -> list[Any]:
        from nimbusq.driver import Finding

        manager = await open_manager(app, url)
        found: list[Any] = []
        for adapter in manager.route.adapters:
            found += await adapter.doctor()
        found += [Finding("error", problem) for problem in manager.check_jobs()]
        found += await _unserved(manager)
        await manager.aclose()
        return found

    from nimbusq.cli.output import show

    found = run(main)
    show(found, {"level": "level", "text": "finding"}, as_json=as_json, empty="nothing to say")
    if any(finding.level == "error" for finding in found):
        raise typer.Exit(exits.FAILED)


async def _unserved(manager: Any) -> list[Any]:
    """Queues of registered jobs that hold jobs while no worker serves them."""
    from nimbusq.driver import Finding

    workers = manager.stores.workers
    if workers is None:
        return []
    served = {queue for report in await workers.list() for queue in report.queues}
    wanted = sorted({job.options.queue for job in manager.registry} - served)
    depths = await manager.depths(wanted) if wanted else []
    return [
        Finding("warning", f"queue {depth.queue} has {depth.pending} jobs and no worker listens to it")
        for depth in depths
        if depth.pending
    ]


def status(
    queues: Annotated[
        list[str] | None, typer.Argument(help="Queues to show besides those of registered jobs.")
    ] = None,
    app: AppOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Queues by state, and the workers that serve them."""

    async def main() -> tuple[list[Any], list[Any]]:
        manager = await open_manager(app, url)
        workers = list(await manager.stores.workers.list()) if manager.stores.workers else []
        names = {"default", *(queues or ()), *(job.options.queue for job in manager.registry)}
        names |= {queue for worker in workers for queue in worker.queues}
        depths = await manager.depths(sorted(names))
        await manager.aclose()
        return list(depths), workers

    from nimbusq.cli.output import show, to_plain

    depths, workers = run(main)
    if as_json:
        import json

        typer.echo(json.dumps({"queues": to_plain(depths), "workers": to_plain(workers)}, indent=2))
        return
    columns = {
        "queue": "queue",
        "pending": "pending",
        "delayed": "delayed",
        "running": "running",
        "oldest": "oldest s",
    }
    show(depths, columns, as_json=False, empty="no queues")
    typer.echo()
    shown = [{**to_plain(worker), "running": len(worker.running)} for worker in workers]
    columns = {"id": "worker", "host": "host", "pid": "pid", "queues": "queues", "running": "running",
               "concurrency": "slots", "seen_at": "last seen"}  # fmt: skip
    show(shown, columns, as_json=False, empty="no worker is alive: start one with `nimbusq work`")
