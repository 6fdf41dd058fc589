"""Data goes to stdout: a table for people, JSON on request or for a pipe that asks for it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import typer


def show(
    rows: Sequence[Any], columns: Mapping[str, str], *, as_json: bool, empty: str, title: str = ""
) -> None:
    """Print `rows` (dataclasses or mappings): as JSON whole, as a table the `columns` (field: heading)."""
    plain = [to_plain(row) for row in rows]
    if as_json:
        typer.echo(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    if not plain:
        typer.echo(empty)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, box=None, header_style="bold", pad_edge=False)
    for name, heading in columns.items():
        table.add_column(heading, overflow="fold", no_wrap=name in ("id", "fingerprint"))
    for row in plain:
        table.add_row(*(_cell(name, row.get(name)) for name in columns))
    Console().print(table)


def to_plain(value: Any) -> Any:
    """Something that JSON can hold; bytes as text with escapes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    match value:
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case Enum():
            return value.value
        case Mapping():
            return {str(key): to_plain(item) for key, item in value.items()}
        case str() | int() | float() | bool() | None:
            return value
        case Iterable():
            return [to_plain(item) for item in value]
        case _:
            return str(value)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_at") or name in ("last_tick", "next"):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value)) if value else "-"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return clean(text)


def clean(text: str, limit: int = 200) -> str:
    """Stored text without control characters (a terminal would obey them), shortened."""
    shown = "".join(ch if ch.isprintable() or ch == "\n" else "\ufffd" for ch in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
