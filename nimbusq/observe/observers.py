"""Observers hear what happens to jobs and can change nothing: one that fails or hangs never touches a job."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from nimbusq.driver import BatchState, Claim, Lost
from nimbusq.envelope import Envelope

log = logging.getLogger("nimbusq.observe")

PATIENCE: Final = 1.0
"""Seconds that an observer may take over one event."""
LEFT_OUT: Final = 30.0
"""Seconds that one which took longer is not told of that event."""


class Observer:
    """Override what you want to hear; each method may be ``async`` or not. Durations are seconds."""

    def dispatched(self, envelope: Envelope) -> Any:
        """The job was stored (the seed's JobDispatched)."""

    def started(self, claim: Claim) -> Any:
        """A run begins."""

    def processed(self, claim: Claim, duration: float, error: str | None) -> Any:
        """The job ended: done, or failed for good with `error` (the seed's JobProcessed)."""

    def retried(self, claim: Claim, delay: float, error: str) -> Any:
        """A run failed and another follows after `delay` (the seed's JobRetried)."""

    def released(self, claim: Claim, delay: float) -> Any:
        """The job was put back without an attempt."""

    def cancelled(self, claim: Claim, reason: str) -> Any:
        """The job was cancelled, or expired before it could start."""

    def reclaimed(self, lost: Sequence[Lost]) -> Any:
        """Leases of lost workers were taken back (the seed's JobsReclaimed)."""

    def lease_lost(self, claim: Claim) -> Any:
        """This worker lost a lease, or had an outcome refused because it had."""

    def batch_finished(self, batch: BatchState) -> Any:
        """All members of a batch have ended (the seed's AfterBatch)."""

    def hook_failed(self, claim: Claim, hook: str, error: BaseException) -> Any:
        """User code beside the handler raised or took too long: `hook` is "failed", the job's `failed()`."""


class Observers:
    """The observers of one manager. `wants` tells cheaply whether anybody listens to an event."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers: tuple[Observer, ...] = ()
        self._listeners: dict[str, tuple[Any, ...]] = {}
        self._left_out: dict[Any, float] = {}
        for observer in observers:
            self.add(observer)

    def add(self, observer: Observer) -> None:
        """Add one; the others stay."""
        self._observers += (observer,)
        for name, default in vars(Observer).items():
            if callable(default) and getattr(type(observer), name, default) is not default:
                self._listeners[name] = (*self._listeners.get(name, ()), getattr(observer, name))

    def wants(self, event: str) -> bool:
        return event in self._listeners

    async def tell(self, event: str, *details: Any) -> None:
        """Tell everybody who listens. Errors and delays of observers are logged and end here.

        One that took too long is left out of that event for a while: a hundred jobs must not wait a hundred times.
        """
        for listener in self._listeners.get(event, ()):
            if self._left_out and self._left_out.get(listener, 0.0) > time.monotonic():
                continue
            try:
                answer = listener(*details)
                if inspect.isawaitable(answer):
                    await self._hear_out(listener, answer)
            except Exception:
                log.exception(
                    "an observer failed at %r; the job is not affected", event, extra={"event": event}
                )

    async def _hear_out(self, listener: Any, answer: Awaitable[Any]) -> None:
        patience = asyncio.timeout(PATIENCE)
        try:
            async with patience:
                await answer
        finally:
            if patience.expired():
                self._left_out[listener] = time.monotonic() + LEFT_OUT
