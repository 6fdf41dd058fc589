"""Waiting without polling: a call listens for changes, a change rings, a clock ends the wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from nimbusq.clock import Clock


class Bell:
    """Wakes one waiting call, from whatever thread."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        if self._loop is asyncio.get_running_loop():
            self._event.set()
        else:
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Forget earlier rings; under the state's lock, before looking at the state."""
        self._event.clear()

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Return at the ring or after `seconds` of that clock, whichever comes first."""
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._ring_after(clock, seconds))
            await self._event.wait()
            timer.cancel()

    async def _ring_after(self, clock: Clock, seconds: float) -> None:
        await clock.sleep(seconds)
        self._event.set()


class Bells:
    """Who waits for which queue or job. Rung under the state's lock, which the listening methods take."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._listeners: dict[tuple[str, str], list[Bell]] = {}

    def at_queues(self, queues: Iterable[str]) -> AbstractContextManager[Bell]:
        return self._listen([("queue", queue) for queue in dict.fromkeys(queues)])

    def at_job(self, job_id: str) -> AbstractContextManager[Bell]:
        return self._listen([("job", job_id)])

    def ring_queue(self, queue: str) -> None:
        """Jobs of the queue may be due, or get due at another time than before."""
        if self._listeners:
            self._ring(("queue", queue))

    def ring_job(self, job_id: str) -> None:
        """The job has ended."""
        if self._listeners:
            self._ring(("job", job_id))

    def ring_all(self) -> None:
        """Time has jumped."""
        for topic in self._listeners:
            self._ring(topic)

    def _ring(self, topic: tuple[str, str]) -> None:
        for bell in self._listeners.get(topic, ()):
            bell.ring()

    @contextmanager
    def _listen(self, topics: list[tuple[str, str]]) -> Iterator[Bell]:
        bell = Bell()
        with self._lock:
            for topic in topics:
                self._listeners.setdefault(topic, []).append(bell)
        try:
            yield bell
        finally:
            with self._lock:
                for topic in topics:
                    self._listeners[topic].remove(bell)
                    if not self._listeners[topic]:
                        del self._listeners[topic]
