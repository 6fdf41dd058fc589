"""Waiting for jobs: one blocking call on the bells of all of a worker's queues (see lua/lib/bell.lua).

The script that is to run then goes out together with the blocking call. Redis runs it as soon as a bell has rung or
the time is up, so that a job is on its way to its worker without another trip there and back.

Two bounds keep it alive: no blocking call lasts longer than 5 s, so that a half-open link is noticed, and the store
is looked into at its end, whoever may have died with a ring in his hand.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Sequence
from typing import Any, Final

from nimbusq.errors import StoreError
from nimbusq_redis.link import Link

_BLOCK: Final = 5.0
_MARGIN: Final = 2.0
"""Seconds beyond the server's own time limit until a blocking call is given up; Redis ends one up to 0.1 s late."""


class Doorbell:
    """The bells of queues, and one for each wait of its own, which serves as its alarm clock: Redis ends a blocking
    call up to 0.1 s late, a ring from outside ends it at once."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @staticmethod
    def alarm() -> str:
        """The name of a bell for one wait, which nobody else waits at."""
        return "!" + secrets.token_hex(8)

    async def wait_and_run(
        self, queues: Sequence[str], alarm: str, seconds: float, script: str, *args: Any, exactly: bool
    ) -> Any:
        """Block until a bell rings, a queue's or the alarm, at most `seconds`, or 5 s if that is sooner; then run the
        script.

        exactly: run it at that time, not up to 0.1 s later.
        """
        bells = (*queues, alarm)
        if not exactly or seconds > _BLOCK:
            return await self._block(bells, min(seconds, _BLOCK), script, args)
        try:
            async with asyncio.TaskGroup() as group:
                ringing = group.create_task(self._ring_in(seconds, alarm))
                reply = await self._block(bells, math.ceil(seconds) + 1, script, args)
                ringing.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return reply

    async def call_off(self, waiting: asyncio.Future[Any], alarm: str) -> None:
        """End a call of `wait_and_run` now, and wait for its end. Raises StoreError when nobody can answer it."""
        try:
            await self._link.run("ring", alarm)
        except StoreError:
            waiting.cancel()
            raise
        finally:
            await asyncio.wait({waiting})

    async def _ring_in(self, seconds: float, alarm: str) -> None:
        await asyncio.sleep(seconds)
        await self._link.run("ring", alarm)

    async def _block(self, bells: Sequence[str], seconds: float, script: str, args: Sequence[Any]) -> Any:
        keys = [self._link.key(f"bell:{name}") for name in bells]
        limit = max(seconds, 0.001)
        blocking = ("BLPOP", *keys, f"{limit:.3f}")
        return await self._link.run(script, *args, seconds=limit + _MARGIN, after=blocking)
