"""Unique locks by hand: the verbs of the seed's unique jobs, on the lock that `.unique_for()` takes."""

from __future__ import annotations

from typing import Any

from nimbusq.builder import Dispatch, as_job
from nimbusq.driver import Locker
from nimbusq.envelope import digest
from nimbusq.jobs import Job
from nimbusq.keys import LOCK_KEY, unique_key
from nimbusq.manager import Manager, get_manager
from nimbusq.receipt import Receipt


async def dispatch_unique(job: Any, /, *args: Any, **kwargs: Any) -> Receipt[Any]:
    """Send the job unless one with its `unique_id()` (else: equal arguments) is pending or running.

    The skipped send answers with status "duplicate" and the holder's id (the seed's DispatchUnique says nothing).
    The lock lasts for the job's `unique_for` at most, an hour by default. For other options:
    ``dispatch(job).on_queue(…).unique_for().send()``.
    """
    return await Dispatch[Any](as_job(job, *args, **kwargs)).unique_for().send()


async def is_unique_locked(job: Job, manager: Manager | None = None) -> bool:
    """A job with the same unique id holds the lock. Nothing is acquired to find out."""
    locker, key = _lock_of(job, manager)
    return await locker.holder(key) is not None


async def acquire_unique_lock(job: Job, manager: Manager | None = None) -> str | None:
    """Take the job's lock by hand for its `unique_for`; the token, or None while it is held."""
    locker, key = _lock_of(job, manager)
    return await locker.acquire(key, job.options.unique_for)


async def release_unique_lock(job: Job, token: str | None = None, manager: Manager | None = None) -> bool:
    """Free the job's lock: with a token only if it is the holder's, without one whoever holds it."""
    locker, key = _lock_of(job, manager)
    return await (locker.force_release(key) if token is None else locker.release(key, token))


def _lock_of(job: Job, manager: Manager | None) -> tuple[Locker, str]:
    manager = manager or get_manager()
    locker: Locker = manager.require("locker", "unique locks")
    key = unique_key(job, manager.codec.encode(job), None)
    return locker, LOCK_KEY + digest(job.options.name, key)
