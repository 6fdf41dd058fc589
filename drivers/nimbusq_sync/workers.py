"""Who is at work, by their own reports."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nimbusq.driver import WorkerReport

if TYPE_CHECKING:
    from nimbusq_sync.state import State

_FORGOTTEN_AFTER: Final = 86_400.0
"""Seconds of silence after which only a worker's counters are kept."""


class Crew:
    """The workers' last reports, and the counters of those that left."""

    def __init__(self) -> None:
        self.reports: dict[str, WorkerReport] = {}
        self._gone: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def put(self, report: WorkerReport) -> None:
        self.reports[report.id] = report
        silent_since = report.seen_at - _FORGOTTEN_AFTER
        for worker_id in [other.id for other in self.reports.values() if other.seen_at < silent_since]:
            self.leave(worker_id)

    def leave(self, worker_id: str) -> None:
        report = self.reports.pop(worker_id, None)
        if report:
            _add(self._gone, report)

    def totals(self) -> dict[str, dict[str, int]]:
        sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for queue, counters in self._gone.items():
            sums[queue].update(counters)
        for report in self.reports.values():
            _add(sums, report)
        return {queue: dict(counters) for queue, counters in sums.items()}


def _add(sums: defaultdict[str, Counter[str]], report: WorkerReport) -> None:
    for queue, counters in report.counters.items():
        sums[queue].update(counters)


class MemoryWorkers:
    """`nimbusq.driver.Workers` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def report(self, report: WorkerReport) -> None:
        state = self._state
        with state.lock:
            state.crew.put(replace(report, seen_at=state.now()))

    async def leave(self, worker_id: str) -> None:
        with self._state.lock:
            self._state.crew.leave(worker_id)

    async def list(self, *, max_age: float = 30.0) -> Sequence[WorkerReport]:
        state = self._state
        with state.lock:
            oldest = state.now() - max_age
            return [report for report in state.crew.reports.values() if report.seen_at >= oldest]

    async def totals(self) -> Mapping[str, Mapping[str, int]]:
        with self._state.lock:
            return self._state.crew.totals()
