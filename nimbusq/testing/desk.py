"""A queue on the desk of an application's test: what was sent can be looked at, run, and hurried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from nimbusq.driver import FailedRecord
from nimbusq.envelope import Envelope
from nimbusq.jobs import FunctionJob, Job
from nimbusq.loading import driver_class
from nimbusq.manager import Manager
from nimbusq.observe import Observer
from nimbusq.testing.clock import FakeClock
from nimbusq.worker import Worker


class _Sent(Observer):
    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []

    def dispatched(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)


class Desk:
    """``async with Desk() as desk``: the current manager, in memory, on a clock that stands still.

    Jobs stay queued until `drain`, which runs them as a worker does: decoded from what would travel, with retries,
    callbacks, chains and hooks.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self._sent = _Sent()
        adapter = driver_class("memory")(inline=False, clock=self.clock)
        self.manager = Manager(adapter, observers=[self._sent])

    async def __aenter__(self) -> Self:
        await self.manager.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.manager.__aexit__(*error)

    def sent(self, job: type[Job] | FunctionJob[..., Any] | None = None, **arguments: Any) -> list[Job]:
        """What was sent since the desk was opened: all of it, or this job's, or those with these arguments."""
        model = job.model if isinstance(job, FunctionJob) else job
        jobs = [
            self.manager.codec.decode(self.manager.registry.get(envelope.name), envelope.body)
            for envelope in self._sent.envelopes
        ]
        return [one for one in jobs if (model is None or type(one) is model) and _has(one, arguments)]

    def assert_sent(
        self, job: type[Job] | FunctionJob[..., Any], *, times: int | None = None, **arguments: Any
    ) -> None:
        """This job was sent, with these arguments, that often (None: at least once). Raises AssertionError."""
        found = len(self.sent(job, **arguments))
        if (found == 0) if times is None else (found != times):
            wanted = "at least once" if times is None else f"{times} times"
            raise AssertionError(
                f"{job!r} was sent {found} times with {arguments}, not {wanted}: {self.sent()}"
            )

    def assert_nothing_sent(self) -> None:
        """Raises AssertionError when anything was sent."""
        if self._sent.envelopes:
            raise AssertionError(f"these were sent: {self.sent()}")

    async def drain(self) -> int:
        """Run what is due, and what follows from it, until nothing is; how many runs that took.

        Delayed jobs, and retries that wait for their back-off, are due after `advance`.
        """
        runs = 0
        while queues := await self._due():
            runs += await Worker(self.manager, queues, concurrency=100).run_once()
        return runs

    async def advance(self, seconds: float) -> None:
        """Let time pass on the desk's clock."""
        await self.clock.advance(seconds)

    async def failed(self) -> Sequence[FailedRecord]:
        """Jobs that failed for good, newest first."""
        records, _ = await self.manager.require("failed", "a failed store").page(limit=200)
        return list(records)

    async def _due(self) -> list[str]:
        jobs = self.manager.require("jobs", "listing jobs")
        views, _ = await jobs.list(state="ready", limit=200)
        paused = set(await jobs.paused_queues())
        return sorted({view.queue for view in views} - paused)


def _has(job: Job, arguments: dict[str, Any]) -> bool:
    values = job.model_dump(by_alias=True)
    return all(name in values and values[name] == value for name, value in arguments.items())
