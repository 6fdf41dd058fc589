"""Waiting for jobs: one blocking call on the bells of all of a worker's queues (see lua/lib/bell.lua).

Two bounds keep it alive: no blocking call lasts longer than 5 s, so that a half-open link is noticed, and the store
is looked into at least every 10 s, whoever may have died with a ring in his hand.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Sequence
from typing import Final

from nimbusq_redis.link import Link

_BLOCK: Final = 5.0
_MARGIN: Final = 2.0
"""Seconds beyond the server's own time limit until a blocking call is given up; Redis ends one up to 0.1 s late."""


class Doorbell:
    """The bells that this process waits at. The one under its own name serves it as an alarm clock: Redis ends a
    blocking call up to 0.1 s late, a ring from outside ends it at once."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._own = "!" + secrets.token_hex(8)
        self._prefix = len(link.key("bell:"))

    async def wait(self, queues: Sequence[str], seconds: float, *, exactly: bool) -> str | None:
        """Block until a queue's bell rings, and return the queue; None after `seconds`, or 5 s if that is sooner.

        exactly: be back at that time, not up to 0.1 s later.
        """
        if not exactly or seconds > _BLOCK:
            return await self._block(queues, min(seconds, _BLOCK))
        try:
            async with asyncio.TaskGroup() as group:
                alarm = group.create_task(self._ring_own(seconds))
                rung = await self._block([*queues, self._own], math.ceil(seconds) + 1)
                alarm.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return None if rung == self._own else rung

    async def pass_on(self, queues: Sequence[str]) -> None:
        """Ring for others: this worker leaves, and may take a ring with it."""
        await self._link.run("ring", "", *queues)

    async def _ring_own(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._link.run("ring", self._own)

    async def _block(self, queues: Sequence[str], seconds: float) -> str | None:
        keys = [self._link.key(f"bell:{queue}") for queue in queues]
        limit = max(seconds, 0.001)
        reply = await self._link.command("BLPOP", *keys, f"{limit:.3f}", seconds=limit + _MARGIN)
        return reply[0].decode()[self._prefix :] if reply else None
