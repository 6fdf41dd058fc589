"""Emptying a queue."""

from __future__ import annotations

from typing import Final

from nimbusq.driver import Jobs
from nimbusq.manager import Manager, get_manager
from nimbusq.receipt import cancel

WAITING: Final = ("ready", "delayed", "paused")
PAGE: Final = 200


async def clear(queue: str, *, manager: Manager | None = None) -> int:
    """Cancel everything that waits in a queue, and tell how many that were.

    Each job is cancelled by itself, so that it frees its unique key and counts in its batch. What runs goes on; a job
    that starts meanwhile is asked to stop. Raises UnsupportedByDriver where jobs cannot be listed.
    """
    manager = manager or get_manager()
    jobs: Jobs = manager.require("jobs", "listing jobs")
    return sum(
        [await cancel(manager, job_id, "the queue was cleared") for job_id in await _waiting(jobs, queue)]
    )


async def _waiting(jobs: Jobs, queue: str) -> list[str]:
    """The ids of all that waits, before any of it is cancelled: pages do not move while they are read."""
    found: list[str] = []
    for state in WAITING:
        cursor, more = "", True
        while more:
            views, cursor = await jobs.list(queue=queue, state=state, cursor=cursor, limit=PAGE)
            found += [view.id for view in views]
            more = bool(cursor)
    return found
