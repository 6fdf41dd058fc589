"""One run, start to hand-over. `execute` is the table of contents; each step is a function below it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from nimbusq import context as contexts
from nimbusq.calling import call
from nimbusq.driver import (
    BatchState,
    Cancelled,
    Done,
    Ending,
    Failed,
    Outcome,
    PutBack,
    Retry,
    Settlement,
    SettleStatus,
)
from nimbusq.envelope import Envelope, Unreadable
from nimbusq.errors import (
    BatchNotFound,
    ControlFlow,
    Fail,
    Interrupted,
    JobFailed,
    JobTimeout,
    LeaseLost,
    Release,
    UnknownJob,
    UnreadableJob,
    UnsupportedByDriver,
    UnsupportedVersion,
    WorkerLost,
)
from nimbusq.jobs import Job, callback_parameters, result_adapter
from nimbusq.outcome import (
    RunFacts,
    described,
    fingerprint,
    kind_of,
    settlement,
    storable,
    traceback_text,
)
from nimbusq.retry import Delays, delay_after
from nimbusq.worker.run import Cut, Run

log = logging.getLogger("nimbusq.worker")

_TIME_TO_END = 300.0
"""Seconds before the end of the longest lease at which a run is cut, so that it can still be settled."""
PATIENCE_FOR_UNKNOWN = 15
"""How often a job that this worker cannot know is put back for one that can, before it is parked as failed."""


async def execute(run: Run) -> Outcome | None:
    """Run the job; None when there is nothing left to settle: the lease is lost, the job was completed in the
    application's own transaction, or the run was abandoned."""
    try:
        await _announce(run)
        run.job = load(run)
        value = await _perform(run, run.job)
        outcome = _returned(run, value)
    except (
        BaseException
    ) as error:  # whatever a handler raises is its outcome, but for the interpreter's own end
        if isinstance(error, KeyboardInterrupt):
            raise
        run.error = error
        outcome = decide(run, error)
    return outcome if run.end() else None


async def _announce(run: Run) -> None:
    observers = run.around.manager.observers
    if observers.wants("started"):
        await observers.tell("started", run.claim)


def load(run: Run) -> Job:
    """Find the job's class and read its arguments. Raises UnknownJob, UnsupportedVersion, UnreadableJob."""
    envelope = run.claim.envelope
    if isinstance(envelope, Unreadable):
        raise (UnsupportedVersion if envelope.newer else UnreadableJob)(envelope.error)
    manager = run.around.manager
    return manager.codec.decode(manager.registry.get(envelope.name), envelope.body)


async def _perform(run: Run, job: Job) -> Any:
    assert run.context is not None  # a job was loaded, so there is an envelope
    run.context.completer = partial(complete_in, run)
    contexts.enter(run.context)
    run.around.manager.make_current()
    middleware = run.around.manager.middleware
    try:
        if not middleware.around_runs:
            return await _call(run, job)
        async with middleware.around_run(run.context):
            return await _call(run, job)
    finally:
        run.context.completer = None  # else they refer to each other, and the collector must find them


async def _call(run: Run, job: Job) -> Any:
    if type(job).options.runs_in == "process":
        return await run.around.processes.call(job, run.claim)
    offered = await _callback_arguments(run, type(job))
    return await call(job, offered, partial(_in_thread, run))


async def _in_thread(run: Run, call: Callable[[], Any]) -> Any:
    """A thread cannot be cancelled: a cut run waits for its end, so that nothing is put back while it still works.

    What it then has achieved counts, unless it took longer than its timeout.
    """
    future = run.around.call_in_thread(call)
    ended = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        if future.cancel():  # it had not begun
            raise
        await asyncio.wait([ended])
        if run.cut_by is Cut.TIMEOUT:
            raise
        return ended.result()


async def _callback_arguments(run: Run, model: type[Job]) -> dict[str, Any]:
    """`batch` and `error` for a callback that takes them."""
    header = run.header
    wanted = callback_parameters(model)
    if not wanted or header is None or header.callback is None:
        return {}
    callback = header.callback
    values: dict[str, Any] = {}
    if "batch" in wanted:
        values["batch"] = await _batch_state(run, callback.of)
    if "error" in wanted:
        values["error"] = JobFailed(callback.job_id or "", f"{callback.job_name}: {callback.error}")
    return values


async def _batch_state(run: Run, batch_id: str) -> BatchState:
    batches = run.around.manager.require("batches", "batches")
    state: BatchState | None = await batches.find(batch_id)
    if state is None:
        raise BatchNotFound(f"batch {batch_id} is unknown or expired.")
    return state


def _returned(run: Run, value: Any) -> Outcome | None:
    """What a handler that returned has achieved."""
    if run.context is not None and run.context.completed:
        return None
    if value is None or run.job is None:
        return Done()
    most = run.around.manager.settings.max_result
    try:
        encoded = result_adapter(type(run.job)).dump_json(value)
    except (ValueError, TypeError) as error:
        return _without_result(run, f"its result cannot be encoded: {error}")
    if len(encoded) > most:
        return _without_result(run, f"its result has {len(encoded):,} bytes, at most {most:,} are kept")
    return Done(encoded)


def _without_result(run: Run, why: str) -> Done:
    """The work is done; running it again would not make its result fit."""
    if run.context is not None:
        run.context.log.warning("%s", why)
    return Done(note=storable(why))


# --- deciding ------------------------------------------------------------------------------------------------


def decide(run: Run, error: BaseException) -> Outcome | None:
    """The outcome of a run that ended with an exception: the one place where that is decided."""
    match _flow(error), run.cut_by:
        case _, Cut.LEASE_LOST:
            return None
        case Release(delay=delay), _:
            return PutBack(delay)
        case Fail(reason=reason), _:
            return _failed(_instead(run, reason) if isinstance(reason, BaseException) else error, str(reason))
        case UnknownJob() | UnsupportedVersion(), _ if run.claim.releases < PATIENCE_FOR_UNKNOWN:
            return PutBack(min(60.0, 5.0 * 2**run.claim.releases))
        case UnknownJob() | UnreadableJob(), _:
            return _failed(error)
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
        return _failed(_instead(run, why))
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
        return _failed(error)
    if options is not None and isinstance(error, options.dont_retry):
        return _failed(error)
    return Retry(_delay(run.claim.attempt, options.backoff if options else None), described(error))


def _delay(attempt: int, backoff: Delays | None) -> float:
    try:
        return delay_after(attempt, backoff)
    except Exception:
        log.exception("the job's own backoff raised; the default is used")
        return delay_after(attempt, None)


def _failed(error: BaseException, text: str | None = None) -> Failed:
    return Failed(described(error) if text is None else storable(text), kind_of(error))


# --- concluding ----------------------------------------------------------------------------------------------


async def conclude(run: Run, outcome: Outcome) -> Settlement:
    """The settlement: the outcome and all that follows from it. Raises StoreError."""
    try:
        return await _concluded(run, outcome)
    except UnreadableJob as error:  # what should follow cannot be read, so the job has not done all it should
        run.error = error
        return await _concluded(run, _failed(error))


async def _concluded(run: Run, outcome: Outcome) -> Settlement:
    manager = run.around.manager
    return settlement(
        run.claim,
        outcome,
        facts=_facts(run, outcome),
        catch=await _catch_template(run) if isinstance(outcome, Failed) else None,
        history=manager.settings.history_limit > 0 and manager.stores.history is not None,
        result_ttl=manager.settings.result_ttl,
    )


def _facts(run: Run, outcome: Outcome) -> RunFacts:
    if not isinstance(outcome, Failed) or run.error is None:
        return RunFacts(duration=run.duration, worker=run.around.worker_id)
    header = run.header
    return RunFacts(
        duration=run.duration,
        worker=run.around.worker_id,
        traceback=traceback_text(run.error),
        fingerprint=fingerprint(header.name if header else "", outcome.kind, run.error),
    )


async def _catch_template(run: Run) -> Envelope | None:
    """The catch callback of a failed member's batch."""
    header = run.header
    if header is None or header.batch_id is None:
        return None
    batches = run.around.manager.stores.batches
    state = await batches.find(header.batch_id) if batches is not None else None
    return state.catch if state is not None else None


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
            return _failed(run.error)


async def complete_in(run: Run, session: object, result: object) -> None:
    """Settle the run as done in the application's transaction; see `JobContext.complete_in`."""
    adapter = run.around.adapter
    if not adapter.capabilities.transactional:
        raise UnsupportedByDriver(
            adapter.capabilities.driver, "complete_in", "Use the database driver, or settle by returning."
        )
    run.around.let_go(run)
    outcome = _returned(run, result) or Done()
    answer = (await adapter.settle([await conclude(run, outcome)], tx=session))[0]
    if answer.status is SettleStatus.LOST:
        raise LeaseLost(f"job {run.claim.id}: another worker has it, or had it. Roll the transaction back.")
