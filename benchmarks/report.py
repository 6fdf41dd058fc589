"""The results as Markdown: one table of medians, one of aims."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks.aims import AIMS
from benchmarks.results import Results


def markdown(results: Results, command: str) -> str:
    """Both tables, under a line that says where and how they were made."""
    how = (
        f"`{command}`, {datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, "
        f"{psutil.cpu_count()} cores, load {psutil.getloadavg()[0]:.1f}; medians over the rounds."
    )
    parts = [how, medians(results), aims(results)]
    if results.troubles:
        parts.append("Not counted:\n\n" + "\n".join(f"- {trouble}" for trouble in results.troubles))
    return "\n\n".join(parts) + "\n"


def medians(results: Results) -> str:
    """A row for each figure, a column for each peer; the best peer's is bold, and nimbusq's ratio to it is last."""
    names = [entry.name for entry in results.entries if entry.name in results.values]
    rows = []
    for figure in results.figures():
        best = results.best(figure)
        ratio = results.ratio(figure, best) if best is not None else None
        cells = [_shown(results.median(name, figure)) for name in names]
        cells = [f"**{cell}**" if name == best else cell for name, cell in zip(names, cells, strict=True)]
        rows.append([figure, *cells, _shown(ratio)])
    return _table(["", *names, "nimbusq ÷ best peer"], rows)


def aims(results: Results) -> str:
    """A row for each aim that was measured."""
    rows = []
    for aim in AIMS[results.driver]:
        value = results.value(aim)
        if value is not None:
            rows.append([aim.figure, str(aim), _shown(value), "met" if aim.met(value) else "**missed**"])
    return _table(["", "aim", "measured", ""], rows) if rows else "No aim was measured."


def write_into(page: Path, driver: str, text: str) -> None:
    """Replace what the page has between this driver's two markers. Raises ValueError where it has none."""
    begin, end = f"<!-- results of {driver} -->", "<!-- end -->"
    before, found, rest = page.read_text().partition(begin)
    if not found:
        raise ValueError(f"{page} has no line {begin}")
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{rest.partition(end)[2]}")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
