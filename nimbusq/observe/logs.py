"""One log line for each job that ends, with its facts as `extra` for structured logs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from nimbusq.driver import BatchState, Claim, Lost
from nimbusq.envelope import Unreadable
from nimbusq.observe.observers import Observer

log = logging.getLogger("nimbusq.job")


class LogObserver(Observer):
    """Logs ends at INFO (failures at ERROR, retries at WARNING) and starts at DEBUG. Arguments are never logged."""

    def started(self, claim: Claim) -> None:
        if log.isEnabledFor(logging.DEBUG):
            self._line(logging.DEBUG, "start", claim, "attempt %d", claim.attempt)

    def processed(self, claim: Claim, duration: float, error: str | None) -> None:
        if error is None:
            self._line(logging.INFO, "done", claim, "%s (waited %s)", _time(duration), _time(claim.waited))
        else:
            self._line(logging.ERROR, "fail", claim, "%s  %s - failed for good", _time(duration), error)

    def retried(self, claim: Claim, delay: float, error: str) -> None:
        self._line(
            logging.WARNING,
            "retry",
            claim,
            "%s - attempt %d, again in %s",
            error,
            claim.attempt,
            _time(delay),
        )

    def released(self, claim: Claim, delay: float) -> None:
        self._line(logging.INFO, "release", claim, "again in %s", _time(delay))

    def cancelled(self, claim: Claim, reason: str) -> None:
        self._line(logging.INFO, "cancel", claim, "%s", reason)

    def batch_finished(self, batch: BatchState) -> None:
        log.info(
            "BATCH %s: %d of %d done, %d failed",
            batch.name or batch.id,
            batch.processed - batch.failed,
            batch.total,
            batch.failed,
            extra={"event": "batch_finished", "batch_id": batch.id},
        )

    def reclaimed(self, lost: Sequence[Lost]) -> None:
        """The worker itself logs each."""

    def _line(self, level: int, event: str, claim: Claim, text: str, *details: Any) -> None:
        if not log.isEnabledFor(level):
            return
        name = "(unreadable)" if isinstance(claim.envelope, Unreadable) else claim.envelope.name
        extra = {
            "event": event,
            "job_id": claim.id,
            "job_name": name,
            "queue": claim.queue,
            "attempt": claim.attempt,
        }
        line = f"%-7s %s %s %s {text}"
        log.log(level, line, event.upper(), name, claim.id, claim.queue, *details, extra=extra)


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"
