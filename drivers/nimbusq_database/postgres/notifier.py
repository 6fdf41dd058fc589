"""NOTIFY after commits: at once when it is quiet, at most one every 20 ms when it is not.

Inside the pushing transaction it would serialize all commits of the database (PostgreSQL takes one lock for all
notifying commits). So a task of the adapter's own sends it afterwards, for all that was pushed meanwhile. Should
it get lost, pollers find the jobs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from nimbusq.errors import StoreError

_SHORTEST_PAUSE: Final = 0.001
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
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._work(), name="nimbusq notifier")

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
        pause = _SHORTEST_PAUSE
        while True:
            await self._news.wait()
            self._news.clear()
            await self._flush()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE) if self._news.is_set() else _SHORTEST_PAUSE

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
