"""``nimbusq batches``: the progress of batches, and their cancellation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nimbusq.cli import exits
from nimbusq.cli.session import AppOption, JsonOption, UrlOption, fail, open_manager, run

if TYPE_CHECKING:
    from nimbusq.driver import BatchState

batches = typer.Typer(help="Batches: list, show, cancel.", no_args_is_help=True)

_COLUMNS = {
    "id": "batch",
    "name": "name",
    "stage": "stage",
    "total": "members",
    "pending": "pending",
    "failed": "failed",
    "created_at": "created",
}


def batch_row(state: BatchState, now: float) -> dict[str, Any]:
    """What is shown of a batch; `now` is the store's clock."""
    from nimbusq.batch import stage_of
    from nimbusq.cli.output import to_plain

    row = to_plain(state)
    del row["catch"]  # the template of a job, which is nobody's business here
    return {**row, "stage": stage_of(state, now)}


@batches.command("list")
def list_(
    app: AppOption = None,
    url: UrlOption = None,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Only those of this page that their producer has abandoned.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    cursor: Annotated[str, typer.Option(help="Where the page before ended.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Newest first."""

    async def main() -> tuple[list[dict[str, Any]], str]:
        manager = await open_manager(app, url)
        states, following = await manager.require("batches", "batches").list(cursor=cursor, limit=limit)
        now = await manager.require("schedules", "the store's clock").now()
        await manager.aclose()
        return [batch_row(state, now) for state in states], following

    from nimbusq.cli.output import show

    rows, following = run(main)
    shown = [row for row in rows if row["stage"] == "incomplete" or not incomplete]
    show(shown, _COLUMNS, as_json=as_json, empty="no batches")
    if following:
        typer.echo(f"more: --cursor {following}", err=True)


@batches.command("show")
def show_batch(
    batch_id: str, app: AppOption = None, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """One batch with the errors of its failed members."""

    async def main() -> dict[str, Any] | None:
        manager = await open_manager(app, url)
        state = await manager.require("batches", "batches").find(batch_id)
        now = await manager.require("schedules", "the store's clock").now()
        await manager.aclose()
        return None if state is None else batch_row(state, now)

    from nimbusq.cli.output import clean, show

    row = run(main)
    if row is None:
        fail(exits.NOT_FOUND, f"batch {batch_id} is unknown or has expired.")
    show([row], _COLUMNS, as_json=as_json, empty="")
    if not as_json:
        for error in row["errors"]:
            typer.echo(clean(error))


@batches.command()
def cancel(batch_id: str, app: AppOption = None, url: UrlOption = None) -> None:
    """Cancel what has not started, and ask what runs to stop."""

    async def main() -> BatchState | None:
        from nimbusq.batch import SentBatch

        manager = await open_manager(app, url)
        found: BatchState | None = await manager.require("batches", "batches").find(batch_id)
        state = None if found is None else await SentBatch(found, manager).cancel()
        await manager.aclose()
        return state

    state = run(main)
    if state is None:
        fail(exits.NOT_FOUND, f"batch {batch_id} is unknown or has expired.")
    typer.echo(f"{batch_id} cancelled: {state.pending} of {state.total} members still run")
