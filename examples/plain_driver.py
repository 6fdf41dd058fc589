"""A driver in one file: jobs in a dict, with no stores. docs/writing_a_driver.md walks through it.

It can do what the five verbs ask of every driver, and says by its capabilities that it can do no more.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from nimbusq.clock import Clock, SystemClock
from nimbusq.driver import (
    Capabilities,
    Claim,
    Claimed,
    Depth,
    DriverSettings,
    Ending,
    Finding,
    Lane,
    Lost,
    Pushed,
    PutBack,
    Renewal,
    Retry,
    Settled,
    Settlement,
    SettleStatus,
    Stores,
    Want,
)
from nimbusq.envelope import Envelope, decode
from nimbusq.errors import ConfigError, UnsupportedByDriver


@dataclass(slots=True)
class _Job:
    id: str
    queue: str
    wire: bytes
    max_attempts: int
    run_at: float
    attempt: int = 0
    releases: int = 0
    reclaimed: bool = False
    ending: Ending | None = None
    token: str | None = None
    lease_until: float = 0.0


@dataclass(slots=True)
class _Store:
    """What clones share; a real driver has a server in its place."""

    clock: Clock
    jobs: dict[str, _Job] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class PlainAdapter:
    """`nimbusq.driver.Adapter` for one event loop. A claim looks at every job: it is an example, not a queue."""

    capabilities = Capabilities(
        driver="plain",
        durable=False,
        lease="timed",
        fenced=True,
        atomic=False,
        transactional=False,
        priorities=False,
        cancellable=False,
        max_delay=None,
        max_lease=None,
        max_body=None,
    )
    stores = Stores()

    def __init__(self, clock: Clock | None = None, *, store: _Store | None = None) -> None:
        self._store = store or _Store(clock or SystemClock())

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:
        if url not in {"plain", "plain://"} or settings.options:
            raise ConfigError(f"the plain driver has no address and no options: write plain://, not {url!r}.")
        return cls()

    def clone(self) -> Self:
        return type(self)(store=self._store)

    async def open(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """Nothing to close."""

    async def setup(self, queues: Sequence[str]) -> None:
        """Nothing to create."""

    async def doctor(self) -> Sequence[Finding]:
        return [Finding("warning", "plain is an example: it keeps jobs in memory and scans them all")]

    async def push(self, envelopes: Sequence[Envelope], *, tx: object | None = None) -> Sequence[Pushed]:
        _refuse(tx)
        for envelope in envelopes:
            wire = envelope.to_wire()
            self._insert(envelope.id, envelope.queue, wire, envelope.max_attempts, envelope.delay)
        return [Pushed(envelope.id) for envelope in envelopes]

    async def push_raw(self, queue: str, raw: bytes, *, job_id: str | None = None) -> Pushed:
        """Only the suite needs it here; a driver with a failed store does too."""
        job_id = job_id or str(uuid.uuid4())
        self._insert(job_id, queue, raw, max_attempts=4, delay=0.0)
        return Pushed(job_id)

    def _insert(self, job_id: str, queue: str, wire: bytes, max_attempts: int, delay: float) -> None:
        job = _Job(job_id, queue, wire, max_attempts, run_at=self._now() + delay)
        self._store.jobs.setdefault(job_id, job)
        self._store.changed.set()

    async def claim(self, want: Want) -> Claimed:
        deadline = self._store.clock.monotonic() + want.wait
        while True:
            claimed = self._claim_now(want)
            remaining = deadline - self._store.clock.monotonic()
            if claimed.claims or claimed.lost or remaining <= 0:
                return claimed
            await self._wait_for_change(min(remaining, self._seconds_to_next()))

    def _claim_now(self, want: Want) -> Claimed:
        """One step: no await, so that nothing comes between."""
        lost = [self._take_back(job) for job in self._store.jobs.values() if self._is_lost(job)]
        claims = [self._hand_out(job, want) for job in self._store.jobs.values() if self._must_end(job)]
        slots = want.limit
        for lane in want.lanes:
            for job in self._due(lane)[: min(slots, lane.limit)]:
                job.attempt += 1
                claims.append(self._hand_out(job, want))
                slots -= 1
        return Claimed(claims, lost)

    def _is_lost(self, job: _Job) -> bool:
        return job.token is not None and job.lease_until <= self._now()

    def _must_end(self, job: _Job) -> bool:
        return job.token is None and job.ending is not None

    def _take_back(self, job: _Job) -> Lost:
        job.token, job.reclaimed, job.run_at = None, True, self._now()
        if job.attempt >= job.max_attempts:
            job.ending = Ending.LOST
        return Lost(id=job.id, queue=job.queue, envelope=decode(job.wire), attempt=job.attempt)

    def _due(self, lane: Lane) -> list[_Job]:
        now = self._now()
        jobs = (job for job in self._store.jobs.values() if job.queue == lane.queue and job.token is None)
        return sorted((job for job in jobs if job.run_at <= now), key=lambda job: job.run_at)

    def _hand_out(self, job: _Job, want: Want) -> Claim:
        now = self._now()
        job.token, job.lease_until = want.token, now + want.lease
        return Claim(
            id=job.id,
            queue=job.queue,
            envelope=decode(job.wire),
            attempt=job.attempt,
            token=want.token,
            releases=job.releases,
            fence=job.attempt,
            run_at=job.run_at,
            waited=now - job.run_at,
            reclaimed=job.reclaimed,
            ending=job.ending,
        )

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:
        until = self._now() + lease
        renewals = []
        for claim in claims:
            job = self._held(claim)
            if job:
                job.lease_until = max(job.lease_until, until)
            renewals.append(Renewal.RENEWED if job else Renewal.LOST)
        return renewals

    async def settle(
        self, settlements: Sequence[Settlement], *, tx: object | None = None
    ) -> Sequence[Settled]:
        _refuse(tx)
        return [Settled(self._settle(settlement)) for settlement in settlements]

    def _settle(self, settlement: Settlement) -> SettleStatus:
        job = self._held(settlement.claim)
        if job is None:
            return SettleStatus.LOST
        match settlement.outcome:
            case Retry(delay):
                job.token, job.run_at = None, self._now() + delay
            case PutBack(delay, counted):
                job.token, job.run_at = None, self._now() + delay
                job.attempt -= 1
                job.releases += counted
            case _:
                del self._store.jobs[job.id]
        self._store.changed.set()
        return SettleStatus.SETTLED

    def _held(self, claim: Claim) -> _Job | None:
        """The job, if the claim still holds it: the one guard of extend and settle."""
        job = self._store.jobs.get(claim.id)
        return job if job and job.token == claim.token else None

    async def depth(self, queues: Sequence[str]) -> Sequence[Depth]:
        return [self._depth(queue) for queue in queues]

    def _depth(self, queue: str) -> Depth:
        jobs = [job for job in self._store.jobs.values() if job.queue == queue]
        waiting = [job.run_at for job in jobs if job.token is None]
        now = self._now()
        due = [run_at for run_at in waiting if run_at <= now]
        oldest = now - min(due) if due else None
        delayed, running = len(waiting) - len(due), len(jobs) - len(waiting)
        return Depth(queue=queue, pending=len(due), delayed=delayed, running=running, oldest=oldest)

    def _now(self) -> float:
        return round(self._store.clock.time(), 6)

    def _seconds_to_next(self) -> float:
        times = [job.run_at if job.token is None else job.lease_until for job in self._store.jobs.values()]
        now = self._now()
        return min((time - now for time in times if time > now), default=60.0)

    async def _wait_for_change(self, seconds: float) -> None:
        self._store.changed.clear()
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._store.clock.sleep(seconds))
            timer.add_done_callback(lambda _: self._store.changed.set())
            await self._store.changed.wait()
            timer.cancel()


def _refuse(tx: object | None) -> None:
    if tx is not None:
        raise UnsupportedByDriver("plain", "dispatch in a transaction", "Send after the commit.")
