"""NOTIFY: with a push's own commit when it is quiet, afterwards and at most one every 20 ms when it is not.

PostgreSQL takes one lock for all notifying commits, so that with every push it would serialize them. A push after
a pause carries its notification itself, which spares a round trip and a commit; for those that follow at once a
task of the adapter's own sends it afterwards. Should it get lost, pollers find the jobs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from nimbusq.errors import StoreError

_SHORTEST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.02
_LONGEST: Final = 7_000
"""Bytes: a payload must stay below 8,000."""
_log = logging.getLogger("nimbusq.database")


class Notifier:
    """Gathers the names of queues that have news. Its task lives from `open` to `aclose`."""

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._queues: set[str] = set()
        self._news = asyncio.Event()
        self._pause = _SHORTEST_PAUSE
        self._quiet_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._work(), name="nimbusq notifier")

    def carried(self, queue: str) -> str | None:
        """A payload for the push to carry itself; None where that is left to the task."""
        now = asyncio.get_running_loop().time()
        if self._queues or now < self._quiet_at:
            return None
        self._rest(now)
        return json.dumps([queue])

    async def aclose(self) -> None:
        """Send what is left and end the task."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        await self._flush()

    def tell(self, topics: Collection[str]) -> None:
        """Called after a commit; what is no queue's name (`job:…`) concerns this process only."""
        queues = [topic for topic in topics if not topic.startswith("job:")]
        if queues:
            self._queues.update(queues)
            self._news.set()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._news.wait()
            await asyncio.sleep(max(0.0, self._quiet_at - loop.time()))
            self._news.clear()
            self._rest(loop.time())
            await self._flush()

    def _rest(self, now: float) -> None:
        """Be quiet for a pause, which is twice the last one if that ended a moment ago."""
        busy = now - self._quiet_at < self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if busy else _SHORTEST_PAUSE
        self._quiet_at = now + self._pause

    async def _flush(self) -> None:
        queues, self._queues = sorted(self._queues), set()
        for payload in payloads(queues):
            try:
                await self._send(payload)
            except StoreError as error:
                _log.debug("a notification was not sent, pollers will find the jobs: %s", error)


def payloads(queues: Collection[str]) -> list[str]:
    """The names as JSON lists, each short enough for one notification."""
    texts: list[str] = []
    part: list[str] = []
    size = 0
    for queue in queues:
        if part and size + len(queue) > _LONGEST:
            texts.append(json.dumps(part))
            part, size = [], 0
        part.append(queue)
        size += len(queue) + 4
    return [*texts, json.dumps(part)] if part else texts
