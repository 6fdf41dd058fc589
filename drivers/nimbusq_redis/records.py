"""Failed records and history rows as they are stored: JSON, which the scripts read too."""

from __future__ import annotations

import functools
import json
from dataclasses import fields
from typing import Any, Final

from nimbusq.driver import FailedRecord, HistoryRow

_encode = json.JSONEncoder(separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring_ascii
_BESIDE: Final = frozenset({"id", "wire", "failed_at"})
_FAILED: Final = tuple(field.name for field in fields(FailedRecord) if field.name not in _BESIDE)


def failed_text(record: FailedRecord) -> bytes:
    """One line of JSON, then the wire form."""
    return _encode({name: getattr(record, name) for name in _FAILED}).encode() + b"\n" + record.wire


def read_failed(job_id: str, failed_at: float, text: bytes) -> FailedRecord:
    """The record behind its text. Fields that a newer version has written are left out."""
    line, _, wire = text.partition(b"\n")
    values = json.loads(line)
    return FailedRecord(
        id=job_id,
        wire=wire,
        failed_at=failed_at,
        **{name: values[name] for name in _FAILED if name in values},
    )


def history_text(row: HistoryRow) -> str:
    """A row as a JSON object, without what has its default."""
    error = f',"error":{_quoted(row.error)}' if row.error else ""
    times = f',"waited":{float(row.waited)!r},"duration":{float(row.duration)!r}'
    return (
        _kind(row.queue, row.name, row.state, row.attempt, row.worker, row.tags, row.silenced)
        + times
        + error
        + "}"
    )


@functools.lru_cache(maxsize=256)
def _kind(
    queue: str, name: str, state: str, attempt: int, worker: str, tags: tuple[str, ...], silenced: bool
) -> str:
    """What the rows of one kind of job have in common; a worker ends thousands of few kinds."""
    values: dict[str, Any] = {"queue": queue, "name": name, "state": state, "attempt": attempt}
    if worker:
        values["worker"] = worker
    if tags:
        values["tags"] = tags
    if silenced:
        values["silenced"] = True
    return _encode(values)[:-1]


def read_history(job_id: str, finished_at: float, text: bytes) -> HistoryRow:
    """The row behind its text."""
    values = json.loads(text)
    return HistoryRow(
        id=job_id,
        queue=values["queue"],
        name=values["name"],
        state=values["state"],
        attempt=values["attempt"],
        waited=values.get("waited", 0.0),
        duration=values.get("duration", 0.0),
        error=values.get("error", ""),
        worker=values.get("worker", ""),
        tags=tuple(values.get("tags", ())),
        silenced=values.get("silenced", False),
        finished_at=finished_at,
    )
