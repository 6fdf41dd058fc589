"""The adapter: each verb is one step under the state's lock; only `claim` waits, and outside of it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Self

from nimbusq.clock import Clock, SystemClock
from nimbusq.driver import (
    Capabilities,
    Claim,
    Claimed,
    Depth,
    DriverSettings,
    Finding,
    Pushed,
    Renewal,
    Settled,
    Settlement,
    Stores,
    Want,
)
from nimbusq.envelope import Envelope
from nimbusq.errors import ConfigError, UnsupportedByDriver
from nimbusq_sync import claiming, pushing, settling
from nimbusq_sync.batches import MemoryBatches
from nimbusq_sync.failed import MemoryFailedStore
from nimbusq_sync.history import MemoryHistory
from nimbusq_sync.jobs import MemoryJobs
from nimbusq_sync.locks import MemoryLocker
from nimbusq_sync.rates import MemoryLimiter
from nimbusq_sync.results import MemoryResults
from nimbusq_sync.schedules import MemorySchedules
from nimbusq_sync.state import AuditTuple, State
from nimbusq_sync.workers import MemoryWorkers


class SyncAdapter:
    """Jobs in the memory of this process.

    inline: `send()` runs the job before it returns; without it a worker in this process must run.
    clock: decides every time in the store; a fake one makes tests instant.
    Clones share the jobs and may be used from other threads.
    """

    def __init__(
        self,
        *,
        inline: bool = True,
        clock: Clock | None = None,
        settings: DriverSettings | None = None,
        _state: State | None = None,
    ) -> None:
        state = _state or State(clock or SystemClock(), settings or DriverSettings())
        self._state = state
        self.capabilities = Capabilities(
            driver="sync",
            durable=False,
            lease="timed",
            fenced=True,
            atomic=True,
            transactional=False,
            priorities=True,
            cancellable=True,
            max_delay=None,
            max_lease=None,
            max_body=None,
            inline=inline,
        )
        self.stores = Stores(
            locker=MemoryLocker(state),
            batches=MemoryBatches(state),
            limiter=MemoryLimiter(state),
            failed=MemoryFailedStore(state),
            results=MemoryResults(state),
            jobs=MemoryJobs(state),
            schedules=MemorySchedules(state),
            workers=MemoryWorkers(state),
            history=MemoryHistory(state),
        )

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:
        """``sync`` or ``sync://`` runs jobs inline, ``memory`` or ``memory://`` waits for a worker."""
        scheme, _, rest = url.partition(":")
        if scheme not in {"sync", "memory"} or rest not in {"", "//"}:
            raise ConfigError(f"the sync driver has no address: write sync:// or memory://, not {url!r}.")
        return cls(inline=scheme == "sync", settings=settings)

    def clone(self) -> Self:
        return type(self)(inline=self.capabilities.inline, _state=self._state)

    async def open(self) -> None:
        """Nothing to connect to."""

    async def aclose(self) -> None:
        """The jobs stay as long as this adapter or a clone of it is referred to."""

    async def setup(self, queues: Sequence[str]) -> None:
        """Queues need no preparation."""

    async def push(self, envelopes: Sequence[Envelope], *, tx: object | None = None) -> Sequence[Pushed]:
        _refuse(tx)
        stored = [pushing.as_stored(envelope) for envelope in envelopes]
        state = self._state
        with state.lock:
            now = state.now()
            return [pushing.push(state, envelope, now) for envelope in stored]

    async def claim(self, want: Want) -> Claimed:
        claimed, delay = self._claim_now(want)
        while not delay and _nothing(claimed):
            claimed, delay = self._claim_now(want)
        if want.wait <= 0 or not _nothing(claimed):
            return claimed
        return await self._claim_later(want)

    def _claim_now(self, want: Want) -> tuple[Claimed, float]:
        with self._state.lock:
            step = claiming.ClaimStep(self._state, want)
            return step.run(), step.delay

    async def _claim_later(self, want: Want) -> Claimed:
        clock = self._state.clock
        deadline = clock.monotonic() + want.wait
        with self._state.bells.at_queues(lane.queue for lane in want.lanes) as bell:
            while True:
                bell.clear()
                claimed, delay = self._claim_now(want)
                remaining = deadline - clock.monotonic()
                if remaining <= 0 or not _nothing(claimed):
                    return claimed
                await bell.wait(clock, min(delay, remaining))

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:
        with self._state.lock:
            return claiming.extend(self._state, claims, lease)

    async def settle(
        self, settlements: Sequence[Settlement], *, tx: object | None = None
    ) -> Sequence[Settled]:
        _refuse(tx)
        state = self._state
        with state.lock:
            now = state.now()
            return [settling.settle(state, settlement, now) for settlement in settlements]

    async def depth(self, queues: Sequence[str]) -> Sequence[Depth]:
        state = self._state
        with state.lock:
            now = state.now()
            return [_depth(state, name, now) for name in queues]

    async def doctor(self) -> Sequence[Finding]:
        return [Finding("warning", "sync keeps jobs in memory: they end with this process")]

    async def push_raw(self, queue: str, raw: bytes, *, job_id: str | None = None) -> Pushed:
        """Put bytes into the queue as a job, due now, whether they are an envelope or not."""
        state = self._state
        with state.lock:
            return pushing.push_again(
                state, raw, job_id or str(uuid.uuid4()), queue, max_attempts=4, now=state.now()
            )

    async def audit(self) -> list[AuditTuple]:
        """Every transition so far, in order: (event, job id, token, attempt, extra). Testing mode only."""
        with self._state.lock:
            if self._state.audit is None:
                raise ConfigError("there is an audit in testing mode only: DriverSettings(testing=True).")
            return list(self._state.audit)

    async def advance(self, seconds: float) -> None:
        """Move the store's clock forward. Testing mode only."""
        with self._state.lock:
            if not self._state.settings.testing:
                raise ConfigError("the clock moves in testing mode only: DriverSettings(testing=True).")
            self._state.skew += seconds
            self._state.bells.ring_all()


def _nothing(claimed: Claimed) -> bool:
    return not claimed.claims and not claimed.lost


def _depth(state: State, name: str, now: float) -> Depth:
    queue = state.queues.get(name)
    if queue is None:
        return Depth(queue=name, pending=0, delayed=0, running=0)
    pending, delayed, oldest = queue.counts(now)
    return Depth(queue=name, pending=pending, delayed=delayed, running=queue.running, oldest=oldest)


def _refuse(tx: object | None) -> None:
    if tx is not None:
        raise UnsupportedByDriver(
            "sync", "dispatch in a transaction", "Send after the commit, or use the database driver."
        )
