"""Failed records and history rows as they are stored: JSON, which the scripts read too."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Final

from nimbusq.driver import FailedRecord, HistoryRow

_encode = json.JSONEncoder(separators=(",", ":")).encode
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
    values: dict[str, Any] = {
        "queue": row.queue,
        "name": row.name,
        "state": row.state,
        "attempt": row.attempt,
    }
    if row.waited:
        values["waited"] = row.waited
    if row.duration:
        values["duration"] = row.duration
    if row.error:
        values["error"] = row.error
    if row.worker:
        values["worker"] = row.worker
    if row.tags:
        values["tags"] = row.tags
    if row.silenced:
        values["silenced"] = True
    return _encode(values)


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
