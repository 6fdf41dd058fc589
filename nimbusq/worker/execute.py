"""One run, start to hand-over. `execute` is the table of contents; each step is a function below it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from nimbusq import context as contexts
from nimbusq.calling import call
from nimbusq.driver import BatchState, Done, Outcome, SettleStatus
from nimbusq.envelope import Unreadable
from nimbusq.errors import (
    BatchNotFound,
    JobFailed,
    LeaseLost,
    UnreadableJob,
    UnsupportedByDriver,
    UnsupportedVersion,
)
from nimbusq.jobs import Job, callback_parameters, result_adapter
from nimbusq.outcome import storable
from nimbusq.worker.conclude import conclude
from nimbusq.worker.decide import decide
from nimbusq.worker.run import Cut, Run


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
