"""What a run's end means for its job: done elsewhere, failed, put back, to be tried again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from nimbusq.driver import Cancelled, Ending, Failed, Outcome, PutBack, Retry
from nimbusq.errors import (
    ControlFlow,
    Fail,
    Interrupted,
    JobTimeout,
    Release,
    UnknownJob,
    UnreadableJob,
    UnsupportedVersion,
    WorkerLost,
)
from nimbusq.outcome import described, kind_of, storable
from nimbusq.retry import Delays, delay_after
from nimbusq.worker.run import Cut, Run

log = logging.getLogger("nimbusq.worker")

_TIME_TO_END = 300.0
"""Seconds before the end of the longest lease at which a run is cut, so that it can still be settled."""
PATIENCE_FOR_UNKNOWN = 15
"""How often a job that this worker cannot know is put back for one that can, before it is parked as failed."""


def decide(run: Run, error: BaseException) -> Outcome | None:
    """The outcome of a run that ended with an exception: the one place where that is decided."""
    match _flow(error), run.cut_by:
        case _, Cut.LEASE_LOST:
            return None
        case Release(delay=delay), _:
            return PutBack(delay)
        case Fail(reason=reason), _:
            return failed_with(
                _instead(run, reason) if isinstance(reason, BaseException) else error, str(reason)
            )
        case UnknownJob() | UnsupportedVersion(), _ if run.claim.releases < PATIENCE_FOR_UNKNOWN:
            return PutBack(min(60.0, 5.0 * 2**run.claim.releases))
        case UnknownJob() | UnreadableJob(), _:
            return failed_with(error)
        case asyncio.CancelledError(), Cut.SHUTDOWN:
            return interrupted(run)
        case asyncio.CancelledError(), Cut.CANCEL:
            return Cancelled("cancelled by request")
        case asyncio.CancelledError(), Cut.TIMEOUT:
            return _failed_attempt(run, _instead(run, timed_out(run)))
        case _:
            return _failed_attempt(run, error)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _flow(error: BaseException) -> BaseException:
    """The Fail or Release that a task group in the handler may have wrapped; else the error itself."""
    if isinstance(error, BaseExceptionGroup):
        flows = [leaf for leaf in _leaves(error) if isinstance(leaf, ControlFlow)]
        if flows:
            return next((flow for flow in flows if isinstance(flow, Fail)), flows[0])
    cause = error.__cause__
    return cause if isinstance(cause, ControlFlow) else error


def interrupted(run: Run) -> Outcome:
    """A shutdown cut the run: another worker takes it up, unless it may run only once."""
    header = run.header
    if header is not None and header.max_attempts == 1:
        why = Interrupted("the worker was stopped during the only run that retries=0 allows.")
        return failed_with(_instead(run, why))
    return PutBack(0.0, counted=False)


def _instead(run: Run, error: BaseException) -> BaseException:
    """What the job's record and its hook are told instead of what the handler ended with."""
    error.__cause__ = run.error
    run.error = error
    return error


def time_limit(run: Run) -> float | None:
    """Seconds that the run may take: the job's timeout, or the longest that its driver keeps a lease less the time
    to end in good order, whichever is shorter; None without either."""
    header = run.header
    own = header.timeout if header else None
    longest = run.around.adapter.capabilities.max_lease
    if longest is None:
        return own
    ceiling = longest - min(_TIME_TO_END, longest / 10)
    return ceiling if own is None else min(own, ceiling)


def timed_out(run: Run) -> JobTimeout:
    header = run.header
    limit = time_limit(run)
    if limit is None:
        return JobTimeout("the run timed out.")
    if header is not None and header.timeout == limit:
        return JobTimeout(f"the run took longer than its timeout of {limit:g} s.")
    driver = run.around.adapter.capabilities.driver
    return JobTimeout(
        f"the run was cut after {limit:g} s: the {driver} driver cannot keep a job leased for longer."
    )


def _failed_attempt(run: Run, error: BaseException) -> Outcome:
    header = run.header
    options = type(run.job).options if run.job else None
    if header is None or run.claim.attempt >= header.max_attempts:
        return failed_with(error)
    if options is not None and isinstance(error, options.dont_retry):
        return failed_with(error)
    return Retry(_delay(run.claim.attempt, options.backoff if options else None), described(error))


def _delay(attempt: int, backoff: Delays | None) -> float:
    try:
        return delay_after(attempt, backoff)
    except Exception:
        log.exception("the job's own backoff raised; the default is used")
        return delay_after(attempt, None)


def failed_with(error: BaseException, text: str | None = None) -> Failed:
    return Failed(described(error) if text is None else storable(text), kind_of(error))


def ended_unrun(run: Run) -> Outcome:
    """The outcome of a claim that must not run (see `Ending`)."""
    match run.claim.ending:
        case Ending.EXPIRED:
            return Cancelled("expired before it could start")
        case Ending.CANCELLED:
            return Cancelled("cancelled by request")
        case Ending.BLOCKED:
            text = "its overlap key stayed busy: it was put back more often than max_releases allows."
            run.error = Fail(text)
            return Failed(f"OverlapBlocked: {text}", "OverlapBlocked")
        case _:
            text = f"its worker was lost in run {run.claim.attempt}, the last one that it may have."
            run.error = WorkerLost(text)
            return failed_with(run.error)
