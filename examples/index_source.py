"""Index a folder of Python source: one job a file, in a batch, over two workers on an SQLite file.

    python examples/index_source.py [FOLDER] [--kill]

Each `IndexFile` job parses one file and notes what it defines and imports. When all have ended, the batch's
`finally_` job writes the report. A file that does not parse fails for good, stays in the failed list with its
error, and the report names it. With ``--kill`` one worker is killed half-way: its jobs come back when their
leases end, two seconds later, and the report is the same to the byte.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nimbusq import Batch, BatchState, Job, Manager, get_manager, job

T = TypeVar("T")
WORKERS = 2
LEASE = 2.0  # seconds: short, so that one can watch a killed worker's jobs come back
console = Console()


# --- the jobs ----------------------------------------------------------------------------------------------


class DoesNotParse(ValueError):
    """A file is not Python, and will not be at the next attempt."""


class IndexFile(Job, timeout=60, dont_retry=(DoesNotParse,)):
    """Note what one file defines and imports. Running it twice writes the same row twice."""

    folder: Path
    file: Path

    def handle(self) -> None:  # a plain function, so that it runs in a thread
        try:
            tree = ast.parse((self.folder / self.file).read_bytes(), filename=str(self.file))
        except (SyntaxError, ValueError) as error:
            raise DoesNotParse(f"{self.file}: {error}") from error
        kinds = Counter(type(node) for node in ast.walk(tree))
        functions = kinds[ast.FunctionDef] + kinds[ast.AsyncFunctionDef]
        row = (str(self.file), functions, kinds[ast.ClassDef], json.dumps(sorted(imports(tree))))
        with index() as db:
            db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", row)


def imports(tree: ast.Module) -> Iterator[str]:
    """The top-level module of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "(relative)" if node.level else (node.module or "").partition(".")[0]


@job
async def write_report(batch: BatchState) -> None:
    """Add up the index. Written beside its place and then moved: whoever sees the report sees all of it."""
    store = get_manager().stores.failed
    assert store is not None  # the database driver has every store
    errors = sorted([record.error async for record in everything(store.page)])
    draft = report_file().with_suffix(".draft")
    draft.write_text(json.dumps(add_up(batch, errors), indent=2) + "\n")
    draft.replace(report_file())


def add_up(batch: BatchState, errors: Sequence[str]) -> dict[str, Any]:
    """The report: the same for the same source, whatever happened on the way."""
    with index() as db:
        rows = db.execute("SELECT file, functions, classes, imports FROM files ORDER BY file").fetchall()
    modules = Counter(module for *_, found in rows for module in json.loads(found))
    return {
        "files": batch.total,
        "indexed": len(rows),
        "functions": sum(row[1] for row in rows),
        "classes": sum(row[2] for row in rows),
        "imports": modules.total(),
        "most imported": dict(sorted(modules.items(), key=lambda item: (-item[1], item[0]))[:10]),
        "failed": list(errors),
    }


async def everything(page: Callable[..., Awaitable[tuple[Sequence[T], str]]]) -> AsyncIterator[T]:
    """All that a store holds, read page by page."""
    cursor = ""
    while True:
        found, cursor = await page(cursor=cursor)
        for item in found:
            yield item
        if not cursor:
            return


# --- where the index is kept: in INDEX_FOLDER, which the workers inherit -----------------------------------


def report_file() -> Path:
    return Path(os.environ["INDEX_FOLDER"]) / "report.json"


@contextmanager
def index() -> Iterator[sqlite3.Connection]:
    """One transaction on the index."""
    path = Path(os.environ["INDEX_FOLDER"]) / "index.db"
    with closing(sqlite3.connect(path, timeout=30)) as db, db:
        yield db


def create_index() -> None:
    with index() as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE files (file TEXT PRIMARY KEY, functions INT, classes INT, imports TEXT)")


# --- the program -------------------------------------------------------------------------------------------


def main(
    folder: Annotated[
        Path | None, typer.Argument(help="Python source [this Python's standard library]")
    ] = None,
    kill: Annotated[bool, typer.Option("--kill", help="kill one of the workers half-way")] = False,
    output: Annotated[Path, typer.Option(help="where queue, index and report are written")] = Path(".demo"),
) -> None:
    """Index a folder of Python source with nimbusq: one job a file, two workers, one SQLite file."""
    source = (folder or Path(sysconfig.get_path("stdlib"))).resolve()
    files = source_files(source)
    if not files:
        console.print(f"{source} has no Python files.")
        raise typer.Exit(1)
    prepare(output.resolve())
    began = time.monotonic()
    asyncio.run(run(source, files, kill))
    summarize(source, time.monotonic() - began)


def source_files(source: Path) -> list[Path]:
    """Every .py file below, but not what pip has installed."""
    found = (path.relative_to(source) for path in source.rglob("*.py") if path.is_file())
    return sorted(path for path in found if not {"site-packages", "dist-packages"} & set(path.parts))


def prepare(output: Path) -> None:
    """An empty queue and index; the workers find them through the environment."""
    output.mkdir(parents=True, exist_ok=True)
    for path in (*output.glob("*.db*"), *output.glob("report.*")):
        path.unlink()
    os.environ["INDEX_FOLDER"] = str(output)
    os.environ["QUEUE_DRIVER"] = f"sqlite:///{output}/queue.db"
    create_index()
    if nimbusq("migrate", "up").wait():
        raise SystemExit("the queue's tables could not be made")


def nimbusq(*arguments: str, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start the nimbusq command beside this file, so that ``--app index_source`` finds it."""
    command = [sys.executable, "-m", "nimbusq", *arguments]
    # The warnings would be of the source that is indexed.
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    output = log.open("wb") if log else None
    return subprocess.Popen(command, cwd=Path(__file__).parent, env=environment, stdout=output, stderr=output)


@contextmanager
def workers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two worker processes, stopped at the end."""
    logs = [report_file().with_name(f"worker-{n}.log") for n in range(1, WORKERS + 1)]
    options = ("work", "default", "--app", "index_source", "--concurrency", "4", "--lease", str(LEASE))
    started = [nimbusq(*options, log=log) for log in logs]
    try:
        yield started
    finally:
        for worker in started:
            worker.terminate()
        for worker in started:
            worker.wait()


async def run(source: Path, files: Sequence[Path], kill: bool) -> None:
    """Send the batch and watch it until the report is there."""
    members = [IndexFile(folder=source, file=file) for file in files]
    async with Manager(os.environ["QUEUE_DRIVER"]) as manager:
        batch = await Batch(members).named("index").finally_(write_report).send()
        with workers() as started, progress_bar() as bar:
            shown = bar.add_task("indexing", total=len(files), failed=0)
            finished = False
            while not finished:
                finished = report_file().exists()
                state = await batch.refresh()
                bar.update(shown, completed=state.processed, failed=state.failed)
                if kill and state.processed >= len(files) / 2:
                    started[0].kill()
                    bar.console.print(f"killed worker {started[0].pid} after {state.processed} files")
                    kill = False
                if all(worker.poll() is not None for worker in started):
                    raise SystemExit(f"both workers have ended; see their logs in {report_file().parent}")
                await asyncio.sleep(0.05)
        await tell_repeated(manager)


async def tell_repeated(manager: Manager) -> None:
    """Jobs that were taken back from a dead worker and run again."""
    store = manager.stores.history
    assert store is not None
    repeated = [row.id async for row in everything(store.page) if row.attempt > 1]
    if repeated:
        console.print(f"{len(repeated)} jobs lost their worker and were run again by the other one")


def progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files, {task.fields[failed]} failed,"),
        TimeElapsedColumn(),
        console=console,
    )


def summarize(source: Path, seconds: float) -> None:
    """What the report says, for people."""
    text = report_file().read_bytes()
    report: Mapping[str, Any] = json.loads(text)
    table = Table(title=str(source), show_header=False, title_justify="left")
    for name in ("files", "indexed", "functions", "classes", "imports"):
        table.add_row(name, f"{report[name]:,}")
    table.add_row("most imported", ", ".join(f"{name} {n:,}" for name, n in report["most imported"].items()))
    table.add_row("seconds", f"{seconds:.1f}")
    table.add_row("report", f"{report_file()} (sha256 {hashlib.sha256(text).hexdigest()[:12]})")
    console.print(table)
    if report["failed"]:
        console.print(f"{len(report['failed'])} files do not parse and are in the failed list:")
    for error in report["failed"]:
        console.print(f"  {error}", markup=False, highlight=False, soft_wrap=True)
    if report["indexed"] + len(report["failed"]) != report["files"]:
        console.print("[red]the report does not account for every file[/red]")
        raise typer.Exit(1)


if __name__ == "__main__":
    program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    program.command()(main)
    program()
