"""What a handler can know and say of its own run: `current_job()`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from nimbusq.driver import Claim
from nimbusq.envelope import Envelope
from nimbusq.errors import InvalidOption, LeaseLost, NimbusqError

_current: ContextVar[JobContext | None] = ContextVar("nimbusq_job", default=None)


class Completer(Protocol):
    """Settles a run inside the application's own transaction; supplied by the worker."""

    async def __call__(self, session: object, result: object) -> None: ...


class JobContext:
    """One run of one job. Owned by the run's task; the keeper's thread only sets the two flags."""

    __slots__ = (
        "_log",
        "added",
        "cancel_requested",
        "claim",
        "completed",
        "completer",
        "envelope",
        "lease_lost",
        "progressed",
    )

    def __init__(self, claim: Claim, envelope: Envelope) -> None:
        self.claim = claim
        self.envelope = envelope
        self._log: _StampedLog | None = None
        self.lease_lost = False
        """Another worker may run this job by now, and this run's outcome will be refused."""
        self.cancel_requested = False
        """Somebody asked to cancel the job."""
        self.progressed: Mapping[str, Any] = {}
        """What `progress` was last told."""
        self.completed = False
        """The job was settled by `complete_in`."""
        self.added = 0
        """Members that this run has added to its batch; their ids are derived from it, so a second run adds none."""
        self.completer: Completer | None = None
        """Set by the worker."""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that stamps the job's id, name, queue and attempt on each record."""
        if self._log is None:  # most jobs log nothing
            self._log = _StampedLog(self)
        return self._log

    @property
    def id(self) -> str:
        return self.envelope.id

    @property
    def name(self) -> str:
        return self.envelope.name

    @property
    def queue(self) -> str:
        return self.envelope.queue

    @property
    def attempt(self) -> int:
        """1 on the first run."""
        return self.claim.attempt

    @property
    def max_attempts(self) -> int:
        return self.envelope.max_attempts

    @property
    def releases(self) -> int:
        """How often the job was put back without an attempt."""
        return self.claim.releases

    @property
    def fence(self) -> int:
        """A number that rises with every claim of this job: let downstream systems refuse a lower one.

        (Kleppmann's fencing token: a stalled run cannot overwrite what its successor wrote.)
        """
        return self.claim.fence

    @property
    def batch_id(self) -> str | None:
        return self.envelope.batch_id

    @property
    def tags(self) -> tuple[str, ...]:
        return self.envelope.tags

    def progress(self, done: float, total: float | None = None, **details: Any) -> None:
        """Say how far the run is; shown by the dashboard and `nimbusq jobs show` with the worker's next report.

        Raises InvalidOption for details that JSON cannot hold.
        """
        told = {"done": done, **({} if total is None else {"total": total}), **details}
        try:
            json.dumps(told, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidOption(f"progress takes numbers and what JSON can hold: {error}.") from error
        self.progressed = told

    def check(self) -> None:
        """Raise LeaseLost if the lease is gone; for long loops that never await."""
        if self.lease_lost:
            raise LeaseLost(f"job {self.id}: the lease was lost; another worker may run it.")

    async def complete_in(self, session: object, result: object = None) -> None:
        """End the job as done inside the application's transaction: effect and completion commit together.

        `session` is what `.using()` takes. The run's lease is not renewed any more, and the worker's own
        settlement finds the job gone. Raises UnsupportedByDriver without a transactional driver, LeaseLost if
        the job has another holder by now (roll back then).
        """
        if self.completer is None:
            raise NimbusqError("complete_in works only inside a job that a worker runs.")
        await self.completer(session, result)
        self.completed = True


class _StampedLog(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, job: JobContext) -> None:
        super().__init__(logging.getLogger("nimbusq.job"), None)
        self._job = job

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        job = self._job
        stamp = {"job_id": job.id, "job_name": job.name, "queue": job.claim.queue, "attempt": job.attempt}
        kwargs["extra"] = {**stamp, **kwargs.get("extra", {})}
        return msg, kwargs


def current_job() -> JobContext:
    """The run that the calling code belongs to. Raises NimbusqError outside a job."""
    context = _current.get()
    if context is None:
        raise NimbusqError("current_job() works only while a job runs.")
    return context


def find_job() -> JobContext | None:
    """Like `current_job`, but None outside a job."""
    return _current.get()


def enter(context: JobContext) -> None:
    """Make `context` the current job of the calling task or thread."""
    _current.set(context)
