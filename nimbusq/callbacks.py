"""Callbacks of batches and chains: ordinary jobs, pushed by the step that ends what they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from nimbusq.builder import Dispatch
from nimbusq.building import Asked, build
from nimbusq.calling import call, call_plain
from nimbusq.envelope import Callback, Envelope
from nimbusq.errors import InvalidJob, InvalidOption
from nimbusq.jobs import FunctionJob, Job
from nimbusq.manager import Manager

CallbackJob: TypeAlias = Job | FunctionJob[..., Any] | Dispatch[Any]
"""A Job, a `@job` function whose other parameters have defaults, or a builder around one."""
AnyCallback: TypeAlias = CallbackJob | Callable[..., Any]
"""The same, or a plain callable for the in-process `run()`."""


def disarm(items: Iterable[object]) -> None:
    """These builders have been given to a batch or chain: they need no `send()` of their own."""
    for item in items:
        if isinstance(item, Dispatch):
            item.disarm()


def taken(item: object, what: str, *, may_be_unique: bool = False) -> tuple[Job, Asked]:
    """The job and options of a batch member, a chain link, a callback or a schedule; its builder is disarmed.

    Raises InvalidJob for a plain callable (a closure cannot travel), InvalidOption for options that have no
    meaning there.
    """
    job, asked = item.disarm() if isinstance(item, Dispatch) else (item, Asked())
    if isinstance(job, FunctionJob):
        job = job.bind()
    if not isinstance(job, Job):
        raise InvalidJob(
            f"{what} must be a Job or a @job function, not {type(job).__name__}: "
            "it runs in a worker. Plain callables work with run() only."
        )
    if asked.unique is not None and not may_be_unique:
        raise InvalidOption(
            f"{what} cannot be unique: the batch or chain would wait for a job that is not its own."
        )
    if asked.tx is not None:
        raise InvalidOption(f"{what} cannot have a transaction of its own.")
    return job, asked


def callback_envelope(item: object, callback: Callback, job_id: str, manager: Manager) -> Envelope:
    """The whole envelope of a callback, to be stored until it is due."""
    job, asked = taken(item, f"the {callback.kind} callback")
    return build(job, asked, manager, job_id=job_id, callback=callback)


async def call_in_process(callback: AnyCallback, **offered: Any) -> Any:
    """Call a callback here and now, with those of the `offered` arguments that it takes."""
    if isinstance(callback, Dispatch):
        callback = callback.disarm()[0]
    if isinstance(callback, FunctionJob):
        callback = callback.bind()
    if isinstance(callback, Job):
        return await call(callback, offered)
    return await call_plain(callback, offered)
