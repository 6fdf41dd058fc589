"""Notices when the worker's event loop is blocked, names the job and the line, and ends what counts as dead."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final

log = logging.getLogger("nimbusq.worker")

PERIOD: Final = 0.5
WARN_AFTER: Final = 1.0


class StallWatch:
    """A daemon thread that asks the loop for a sign of life. `lag` is the current silence in seconds."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        limit: float,
        describe: Callable[[asyncio.Task[object] | None], str],
        on_dead: Callable[[float], None],
        on_alive: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._describe = describe
        self._on_dead = on_dead
        self._on_alive = on_alive
        self._loop_thread = threading.get_ident()
        self._stop = threading.Event()
        self._alive_at = time.monotonic()
        self._asked = False
        self._warned = False
        self._dead = False
        self._thread = threading.Thread(target=self._main, name="nimbusq-stall-watch", daemon=True)

    @property
    def lag(self) -> float:
        """Seconds since the loop last answered, beyond the period in which it is asked."""
        return max(0.0, time.monotonic() - self._alive_at - PERIOD)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _answer(self) -> None:
        if self._warned:
            log.warning("the event loop answers again after %.1f s", time.monotonic() - self._alive_at)
        self._alive_at = time.monotonic()
        self._asked = self._warned = False
        if self._dead:
            self._dead = False
            self._on_alive()

    def _main(self) -> None:
        while not self._stop.wait(PERIOD):
            if not self._asked:
                self._asked = True
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:
                    return  # the loop is closed
            silence = time.monotonic() - self._alive_at
            if silence > WARN_AFTER + PERIOD and not self._warned:
                self._warned = True
                self._warn(silence)
            if silence > self._limit and not self._dead:
                self._dead = True
                self._on_dead(silence)

    def _warn(self, silence: float) -> None:
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._loop_thread)
        log.warning(
            "the event loop has been blocked for %.1f s by %s at %s: other jobs stand still, leases are kept. "
            "Use `def handle` (a thread) or runs_in='process' for blocking code",
            silence,
            self._describe(task),
            _line(frame),
            extra={"event": "loop_blocked"},
        )


def _line(frame: FrameType | None) -> str:
    """The innermost line outside installed libraries and the standard library."""
    if frame is None:
        return "an unknown line"
    stack = traceback.extract_stack(frame)
    own = [
        f for f in stack if "site-packages" not in f.filename and not f.filename.startswith(sys.base_prefix)
    ]
    inner = (own or stack)[-1]
    return f"{inner.filename}:{inner.lineno} ({inner.line or inner.name})"
