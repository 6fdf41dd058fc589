"""nimbusq with one feature in use, or one default switched off: what does it cost?"""

from __future__ import annotations

from benchmarks.peers.nimbusq import QUEUE, Nimbusq
from nimbusq import Batch, Settings
from nimbusq.builder import Dispatch
from nimbusq.limit import RateLimit


class Unique(Nimbusq):
    """Every job holds a unique slot of its own."""

    def dispatch(self, kind: str, i: int) -> Dispatch[None]:
        return super().dispatch(kind, i).unique(str(i))


class Overlap(Nimbusq):
    """Every job holds an overlap key of its own while it runs."""

    def dispatch(self, kind: str, i: int) -> Dispatch[None]:
        return super().dispatch(kind, i).without_overlapping(str(i))


class BatchMembers(Nimbusq):
    """All jobs are members of one batch."""

    async def send_many(self, kind: str, numbers: range) -> None:
        await Batch([self.dispatch(kind, i) for i in numbers]).send()


class Rated(Nimbusq):
    """The queue has a rate limit that it never reaches."""

    def settings(self) -> Settings:
        return (
            super()
            .settings()
            .model_copy(update={"rate_limits": {QUEUE: RateLimit(per_second=1e6, burst=1_000_000)}})
        )


class WithoutHistory(Nimbusq):
    """No finished job is remembered."""

    def settings(self) -> Settings:
        return super().settings().model_copy(update={"history_limit": 0})
