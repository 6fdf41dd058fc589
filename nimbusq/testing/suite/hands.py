"""A tester's hands on one adapter: short words for the calls that every test makes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nimbusq.driver import (
    Adapter,
    Claim,
    Claimed,
    Done,
    Failed,
    FailedRecord,
    HistoryRow,
    Lane,
    Outcome,
    Pushed,
    Renewal,
    Settled,
    Settlement,
    SettleStatus,
    Want,
)
from nimbusq.envelope import Envelope, Unreadable
from nimbusq.testing.suite.env import AdapterUnderTest, Env


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The hand that pushes.

    tick: the unit of time of the tests, in seconds; leases last three of them.
    patience: how long a claim may take to see what was pushed, in seconds of the store's clock.
    """

    env: Env
    adapter: AdapterUnderTest
    tick: float
    patience: float = 0.0
    queue: str = "probe"

    async def pass_ticks(self, ticks: float) -> None:
        await self.env.advance(ticks * self.tick)

    def envelope(self, **fields: Any) -> Envelope:
        return Envelope(**{"id": new_id(), "name": "Probe", "queue": self.queue, **fields})

    async def push(self, **fields: Any) -> Envelope:
        """Push one job, which must be stored."""
        envelope = self.envelope(**fields)
        assert await self.adapter.push([envelope]) == [Pushed(envelope.id)]
        return envelope

    async def push_many(self, count: int, **fields: Any) -> list[Envelope]:
        envelopes = [self.envelope(**fields) for _ in range(count)]
        assert list(await self.adapter.push(envelopes)) == [Pushed(envelope.id) for envelope in envelopes]
        return envelopes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands(Producer):
    """The other hand, which claims, settles and looks."""

    async def other(self) -> Hands:
        """The hands of another process on the same store."""
        return replace(self, adapter=await self.env.second())

    def want(self, limit: int = 10, **fields: Any) -> Want:
        """lanes: by default the one queue, without a limit of its own."""
        lanes = fields.pop("lanes", None) or (Lane(queue=self.queue, limit=limit),)
        defaults = {"token": new_id(), "lease": 3 * self.tick, "wait": self.patience}
        return Want(**{**defaults, **fields}, limit=limit, lanes=lanes)

    async def collect(self, limit: int = 10, **fields: Any) -> Claimed:
        """Claim and answer all that the call says."""
        return await self.adapter.claim(self.want(limit, **fields))

    async def claim(self, limit: int = 10, **fields: Any) -> list[Claim]:
        return list((await self.collect(limit, **fields)).claims)

    async def claim_all(self, limit: int = 100, **fields: Any) -> list[Claim]:
        """Claim until nothing more comes."""
        claims: list[Claim] = []
        for _ in range(500):
            more = await self.claim(limit, **fields)
            if not more:
                return claims
            claims += more
        raise AssertionError(f"claims never end: {len(claims)} so far, of {len(set(ids(claims)))} jobs")

    async def take(self, **fields: Any) -> Claim:
        """Claim the one job that must be there to run."""
        (claim,) = await self.claim(**fields)
        assert claim.ending is None
        return claim

    async def take_ending(self, **fields: Any) -> Claim:
        """Claim the one job that must be there to be ended."""
        (claim,) = await self.claim(**fields)
        assert claim.ending is not None
        return claim

    async def extend(self, claim: Claim, *, ticks: float = 3) -> Renewal:
        (renewal,) = await self.adapter.extend([claim], lease=ticks * self.tick)
        return renewal

    async def settle(self, claim: Claim, outcome: Outcome | None = None, **fields: Any) -> Settled:
        settlement = Settlement(claim=claim, outcome=outcome or Done(), **fields)
        (settled,) = await self.adapter.settle([settlement])
        return settled

    async def finish(self, claim: Claim, outcome: Outcome | None = None, **fields: Any) -> Settled:
        """Settle a claim that must still hold its job."""
        settled = await self.settle(claim, outcome, **fields)
        assert settled.status is SettleStatus.SETTLED
        return settled

    async def fail(self, claim: Claim, error: str = "boom", **fields: Any) -> Settled:
        """Fail the job for good, with its record, as core does."""
        record = failed_record(claim, error)
        row = history_row(claim, "failed", error)
        return await self.finish(claim, Failed(error), failed=record, history=row, **fields)

    async def counts(self) -> tuple[int | None, int | None, int | None]:
        """pending, delayed and running of the queue."""
        (depth,) = await self.adapter.depth([self.queue])
        return depth.pending, depth.delayed, depth.running

    async def is_idle(self) -> bool:
        """Nothing is due, nothing lost."""
        claimed = await self.collect()
        return not claimed.claims and not claimed.lost


def failed_record(claim: Claim, error: str = "boom", **fields: Any) -> FailedRecord:
    envelope = claim.envelope
    wire = envelope.raw if isinstance(envelope, Unreadable) else envelope.to_wire()
    name = "unreadable" if isinstance(envelope, Unreadable) else envelope.name
    defaults = {"kind": "ValueError", "traceback": "line 1", "fingerprint": "Probe/ValueError", "attempts": 1}
    return FailedRecord(
        id=claim.id, queue=claim.queue, name=name, wire=wire, error=error, **{**defaults, **fields}
    )


def history_row(claim: Claim, state: Any, error: str = "") -> HistoryRow:
    name = "unreadable" if isinstance(claim.envelope, Unreadable) else claim.envelope.name
    return HistoryRow(
        id=claim.id, queue=claim.queue, name=name, state=state, attempt=claim.attempt, error=error
    )


def queue_only(*names: str, limit: int = 10) -> tuple[Lane, ...]:
    """Lanes for those queues, in that order of preference."""
    return tuple(Lane(queue=name, limit=limit) for name in names)


def ids(jobs: Sequence[Envelope] | Sequence[Claim]) -> list[str]:
    return [job.id for job in jobs]


async def settle_all(adapter: Adapter, claims: Sequence[Claim], outcome: Outcome | None = None) -> None:
    """Settle claims that must all still hold their jobs."""
    settled = await adapter.settle([Settlement(claim=claim, outcome=outcome or Done()) for claim in claims])
    assert [answer.status for answer in settled] == [SettleStatus.SETTLED] * len(claims)
