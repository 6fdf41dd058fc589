"""Calling a job's handler, wherever it runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio.to_thread

from nimbusq.errors import Fail, JobFailed, Release
from nimbusq.jobs import Job, callback_parameters, is_async

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


async def call(
    job: Job, offered: dict[str, Any] | None = None, in_thread: InThread = anyio.to_thread.run_sync
) -> Any:
    """Run the handler, with those of the `offered` arguments (`batch`, `error`) that it takes."""
    model = type(job)
    wanted = callback_parameters(model)
    extra = {name: value for name, value in offered.items() if name in wanted} if offered and wanted else {}
    if is_async(model):
        return await job.handle(**extra)
    return await in_thread(partial(job.handle, **extra))


async def call_to_its_end(job: Job) -> Any:
    """Run a job without any queue. A released one runs again after its delay; `Fail` is raised as the error that it
    carries, or as JobFailed."""
    while True:
        try:
            return await call(job)
        except Release as release:
            await asyncio.sleep(release.delay)
        except Fail as fail:
            if isinstance(fail.reason, Exception):
                raise fail.reason from fail
            raise JobFailed("", f"{job.options.name}: {fail.reason}") from fail


async def call_plain(function: Callable[..., Any], offered: dict[str, Any]) -> Any:
    """Call any callable, with those of the `offered` arguments that it takes, by name."""
    names = inspect.signature(function).parameters
    answer = function(**{name: value for name, value in offered.items() if name in names})
    return await answer if inspect.isawaitable(answer) else answer
