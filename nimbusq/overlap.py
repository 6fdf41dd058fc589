"""The seed's wrapper for jobs that must not run at the same time, in the key space of `overlap_key()`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from nimbusq.builder import Dispatch
from nimbusq.calling import call
from nimbusq.driver import Locker
from nimbusq.envelope import digest
from nimbusq.jobs import Job
from nimbusq.manager import Manager, get_manager
from nimbusq.names import check_key

LOOK_EVERY: Final = 0.05


class WithoutOverlapping:
    """``dispatch(WithoutOverlapping(SyncAccount(id=7), "account-7"))`` (the seed's NewWithoutOverlapping).

    It says what ``dispatch(job).without_overlapping(key)`` says; nothing of it travels but the key. `handle` called
    by hand waits until no other call by hand holds the key, in any process; it does not wait for workers.
    """

    def __init__(
        self,
        job: Job,
        key: str,
        *,
        limit: int = 1,
        expire_after: float | None = None,
        release_after: float | None = None,
        max_releases: int | None = None,
    ) -> None:
        self.inner = job
        self._key = check_key("overlap", key)
        self.limit = limit
        self.expire_after = job.options.expire_after if expire_after is None else expire_after
        self.release_after = job.options.release_after if release_after is None else release_after
        self.max_releases = max_releases

    def overlap_key(self) -> str:
        """The key; its scope is the wrapped job's name."""
        return self._key

    def dispatch(self) -> Dispatch[Any]:
        """A builder for the wrapped job, under the key."""
        return Dispatch[Any](self.inner).without_overlapping(
            self._key, self.limit, self.release_after, self.expire_after, max_releases=self.max_releases
        )

    async def handle(self, manager: Manager | None = None) -> Any:
        """Run the wrapped job here and now, once the key is free."""
        locker: Locker = (manager or get_manager()).require("locker", "locks")
        key = "overlap:" + digest(self.inner.options.name, self._key)
        while (token := await locker.acquire(key, self.expire_after)) is None:  # noqa: ASYNC110  # another process holds it
            await asyncio.sleep(LOOK_EVERY)
        try:
            return await call(self.inner)
        finally:
            await locker.release(key, token)
