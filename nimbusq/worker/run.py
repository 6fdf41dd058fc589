"""One run of one job, from the claim to the hand-over of its outcome."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from nimbusq.context import JobContext
from nimbusq.driver import Adapter, Claim
from nimbusq.jobs import Job
from nimbusq.manager import Manager
from nimbusq.outcome import header_of
from nimbusq.worker.processes import Processes


class Cut(enum.Enum):
    """Why the worker cancelled a run."""

    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease lost"
    CANCEL = "cancelled by request"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every run of a worker shares."""

    manager: Manager
    adapter: Adapter
    worker_id: str
    call_in_thread: Callable[[Callable[[], Any]], Future[Any]]
    processes: Processes
    let_go: Callable[[Run], None]
    """Renew the run's lease no more."""


class Run:
    """Owned by its task. The worker's loop may `cut` or `abandon` it; nobody else touches it."""

    __slots__ = (
        "around",
        "claim",
        "context",
        "cut_by",
        "ended",
        "error",
        "has_slot",
        "header",
        "job",
        "over",
        "started",
        "task",
        "timers",
    )

    def __init__(self, claim: Claim, around: Surroundings) -> None:
        self.claim = claim
        self.around = around
        self.header = header_of(claim)
        self.context = JobContext(claim, self.header) if self.header is not None else None
        self.job: Job | None = None
        self.task: asyncio.Task[Any] | None = None
        self.started = time.perf_counter()
        self.ended: float | None = None
        self.cut_by: Cut | None = None
        self.error: BaseException | None = None
        self.over = False
        """Its outcome is decided: the handler has ended, or was abandoned."""
        self.has_slot = False
        self.timers: list[asyncio.TimerHandle] = []

    @property
    def duration(self) -> float:
        """Seconds from the run's begin to its end, or to now."""
        return (self.ended or time.perf_counter()) - self.started

    def cut(self, reason: Cut) -> None:
        """Cancel the handler, once; the first reason counts, except that a lost lease voids any other."""
        if self.over:
            return
        if reason is Cut.LEASE_LOST and self.context is not None:
            self.context.lease_lost = True
        if reason is Cut.CANCEL and self.context is not None:
            self.context.cancel_requested = True
        first = self.cut_by is None
        if first or reason is Cut.LEASE_LOST:
            self.cut_by = reason
        if first and self.task is not None:
            self.task.cancel()

    def end(self) -> bool:
        """The outcome is decided now. False when it was decided before."""
        if self.over:
            return False
        self.over = True
        self.ended = time.perf_counter()
        for timer in self.timers:
            timer.cancel()
        return True
