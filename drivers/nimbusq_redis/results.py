"""How jobs ended: told at once, or when they do (see lua/lib/ended.lua).

One process blocks on one list, its inbox, however many of its tasks wait for results. No task of its own reads the
inbox: one of those that wait reads for all, and when it leaves another one takes over.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from nimbusq.clock import SystemClock
from nimbusq.driver import Ended
from nimbusq_redis.link import Link
from nimbusq_redis.refs import ref

_BLOCK: Final = 5.0
"""Seconds; then each waiter looks for itself: the word of its job's end may have been lost with a connection."""
_MARGIN: Final = 2.0


class RedisResults:
    """`nimbusq.driver.Results` in Redis."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._clock = SystemClock()
        self._inbox = _Inbox(link)

    async def wait(self, job_id: str, timeout: float) -> Ended | None:
        stored = ref(job_id)
        deadline = self._clock.monotonic() + timeout
        with self._inbox.expecting(stored) as news:
            while True:
                left = deadline - self._clock.monotonic()
                ended = await self._link.run("ended", stored, self._inbox.name if left > 0 else "")
                if ended:
                    return _read(*ended)
                if left <= 0:
                    return None
                await self._inbox.wait(news, min(left, _BLOCK))


def _read(state: bytes, text: bytes) -> Ended:
    error = text.decode("utf-8", "replace")
    match state:
        case b"result":
            return Ended(state="done", result=text)
        case b"done":
            return Ended(state="done", error=error)
        case b"failed":
            return Ended(state="failed", error=error)
        case b"cancelled":
            return Ended(state="cancelled", error=error)
        case _:
            return Ended(state="unknown")


class _News:
    """What one waiter waits for."""

    def __init__(self, inbox: _Inbox, stored: bytes) -> None:
        self._inbox = inbox
        self.stored = stored
        self.event = asyncio.Event()

    def __enter__(self) -> _News:
        self._inbox.waiters.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._inbox.waiters.remove(self)


class _Inbox:
    """The inbox of one link. waiters: who waits at it; reading: one of them reads for all."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._clock = SystemClock()
        self.name = secrets.token_hex(8)
        self.waiters: list[_News] = []
        self._reading = False

    def expecting(self, stored: bytes) -> _News:
        return _News(self, stored)

    async def wait(self, news: _News, seconds: float) -> None:
        """Return when there may be news of the job, at the latest after `seconds`."""
        news.event.clear()
        if self._reading:
            try:
                async with asyncio.timeout(seconds):
                    await news.event.wait()
            except TimeoutError:
                pass
            return
        self._reading = True
        try:
            await self._read(news, self._clock.monotonic() + seconds)
        finally:
            self._reading = False
            if self.waiters:  # another one reads from now on, after a look of its own
                next(iter(w for w in self.waiters if w is not news), news).event.set()

    async def _read(self, news: _News, deadline: float) -> None:
        key = self._link.key(f"inbox:{self.name}")
        while not news.event.is_set() and (left := deadline - self._clock.monotonic()) > 0:
            limit = max(left, 0.01)
            reply = await self._link.command("BLPOP", key, f"{limit:.3f}", seconds=limit + _MARGIN)
            if reply:
                self._tell(reply[1])

    def _tell(self, stored: bytes) -> None:
        for waiter in self.waiters:
            if waiter.stored == stored:
                waiter.event.set()
