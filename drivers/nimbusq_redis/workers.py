"""Who is at work, by their own reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from nimbusq.driver import WorkerReport
from nimbusq_redis.link import Link

_BESIDE: Final = frozenset({"counters", "seen_at"})
_FIELDS: Final = tuple(field.name for field in fields(WorkerReport) if field.name not in _BESIDE)
_TUPLES: Final = ("queues", "names")


class RedisWorkers:
    """`nimbusq.driver.Workers` in Redis."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def report(self, report: WorkerReport) -> None:
        text = json.dumps({name: getattr(report, name) for name in _FIELDS})
        counters = json.dumps({queue: dict(counts) for queue, counts in report.counters.items()})
        await self._link.run("worker_report", report.id, text, counters)

    async def leave(self, worker_id: str) -> None:
        await self._link.run("worker_leave", worker_id)

    async def list(self, *, max_age: float = 30.0) -> Sequence[WorkerReport]:
        fields_ = await self._link.run("worker_list", max_age)
        return [_read(*fields_[at : at + 3]) for at in range(0, len(fields_), 3)]

    async def totals(self) -> Mapping[str, Mapping[str, int]]:
        totals: dict[str, dict[str, int]] = {}
        flat = await self._link.command("HGETALL", self._link.key("workers:totals"))
        for name, value in _pairs(flat):
            queue, _, counter = name.decode().partition(" ")
            totals.setdefault(queue, {})[counter] = int(value)
        return totals


def _read(text: bytes, counters: bytes, seen_at: bytes) -> WorkerReport:
    values: dict[str, Any] = {name: value for name, value in json.loads(text).items() if name in _FIELDS}
    for name in _TUPLES:
        values[name] = tuple(values.get(name, ()))
    return WorkerReport(counters=json.loads(counters), seen_at=float(seen_at) / 1e6, **values)


def _pairs(flat: Mapping[bytes, bytes] | Sequence[bytes]) -> Sequence[tuple[bytes, bytes]]:
    """redis-py answers a mapping or a list, by its version and protocol."""
    if isinstance(flat, Mapping):
        return list(flat.items())
    return list(zip(flat[::2], flat[1::2], strict=True))
