"""Waking callers of this process that wait for something in the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress


class Bell:
    """Shared by an adapter and its clones, which live in other threads' loops; `_lock` guards `_waiting`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, tuple[asyncio.AbstractEventLoop, frozenset[str]]] = {}

    @contextmanager
    def listening(self, topics: Collection[str]) -> Iterator[asyncio.Event]:
        """An event that is set whenever one of the topics is rung."""
        event = asyncio.Event()
        with self._lock:
            self._waiting[event] = asyncio.get_running_loop(), frozenset(topics)
        try:
            yield event
        finally:
            with self._lock:
                del self._waiting[event]

    def ring(self, topics: Collection[str] | None = None) -> None:
        """Wake who waits for one of the topics; None wakes everybody. Any thread may call it."""
        if not self._waiting:
            return
        with self._lock:
            for event, (loop, wanted) in self._waiting.items():
                if topics is None or not wanted.isdisjoint(topics):
                    with suppress(RuntimeError):  # the loop was closed with its waiters
                        loop.call_soon_threadsafe(event.set)
