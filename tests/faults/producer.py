"""Sends the mixed workload of a chaos run through a network that fails, and keeps what it was told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from nimbusq import DuplicateJob, Manager, StoreError, dispatch, dispatch_many
from nimbusq.batch import Batch
from nimbusq.chain import Chain
from nimbusq.errors import DispatchUncertain
from nimbusq.ids import new_id
from tests.faults.workload import (
    Alone,
    Hesitant,
    Hopeless,
    Link,
    Poison,
    Shaky,
    Stalling,
    Tell,
    TellBatch,
    Work,
)

KEYS: Final = 12
LOST: Final = (StoreError, DispatchUncertain, TimeoutError)
"""After these the sender does not know whether the job is stored."""


@dataclass
class Sent:
    """What the sender knows. ok: n -> job id. unknown: the n whose sends failed. batches: id -> its members' n.
    chains: id -> (length, index of the broken link or None)."""

    ok: dict[int, str] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    duplicates: int = 0
    batches: dict[str, list[int]] = field(default_factory=dict)
    chains: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    lost_sends: int = 0


class Producer:
    """jobs: how many, in all kinds. seed: the same one, the same workload. lease: of the workers, in seconds."""

    def __init__(self, manager: Manager, *, jobs: int, seed: int, lease: float) -> None:
        self.sent = Sent()
        self.count = 0
        self._manager = manager
        self._jobs = jobs
        self._lease = lease
        self._dice = random.Random(seed)
        self._stalls = max(2, jobs // 1000)
        self._poison = max(2, jobs // 2000)

    @property
    def progress(self) -> float:
        return self.count / self._jobs

    async def run(self, may_go_on: Callable[[], Awaitable[None]]) -> None:
        """Send everything; before each part `may_go_on` is awaited."""
        rare = self._rare()
        while self.count < self._jobs:
            await may_go_on()
            await self._part(self._dice.random())
            if self._dice.random() < 0.02:
                await next(rare, _nothing)()
        for leftover in rare:
            await leftover()

    def _rare(self) -> Iterator[Callable[[], Awaitable[None]]]:
        for _ in range(self._stalls):
            yield lambda: self._one(Stalling(n=self._n(), seconds=1.2 * self._lease))
        for _ in range(self._poison):
            yield lambda: self._one(Poison(n=self._n()))

    async def _part(self, dice: float) -> None:
        match int(dice * 100):
            case part if part < 35:
                await self._many()
            case part if part < 45:
                await self._one(Shaky(n=self._n(), failures=self._dice.randint(1, 2)))
            case part if part < 50:
                await self._one(Hesitant(n=self._n()))
            case part if part < 55:
                await self._one(Hopeless(n=self._n()))
            case part if part < 60:
                await self._one(Work(n=self._n()), delay=self._dice.uniform(0.2, 2.0))
            case part if part < 72:
                await self._unique()
            case part if part < 80:
                await self._overlapping()
            case part if part < 90:
                await self._batch()
            case _:
                await self._chain()

    def _n(self) -> int:
        self.count += 1
        return self.count

    async def _many(self) -> None:
        jobs = [
            Work(n=self._n(), seconds=self._dice.uniform(0, 0.02)) for _ in range(self._dice.randint(5, 40))
        ]
        try:
            receipts = await dispatch_many(jobs, manager=self._manager)
        except LOST:
            self.sent.lost_sends += 1
            self.sent.unknown |= {job.n for job in jobs}
        else:
            self.sent.ok |= {job.n: receipt.id for job, receipt in zip(jobs, receipts, strict=True)}

    async def _one(self, job: Work, *, delay: float = 0.0) -> None:
        try:
            receipt = await dispatch(job).delay(delay).send()
        except LOST:
            self.sent.lost_sends += 1
            self.sent.unknown.add(job.n)
        else:
            self.sent.ok[job.n] = receipt.id

    async def _unique(self) -> None:
        job = Alone(n=self._n(), key=f"unique {self._dice.randrange(KEYS)}")
        try:
            receipt = await dispatch(job).unique(job.key).send()
        except DuplicateJob:
            self.sent.duplicates += 1
        except LOST:
            self.sent.lost_sends += 1
            self.sent.unknown.add(job.n)
        else:
            self.sent.ok[job.n] = receipt.id

    async def _overlapping(self) -> None:
        job = Alone(n=self._n(), key=f"overlap {self._dice.randrange(KEYS)}", seconds=0.05)
        try:
            receipt = await dispatch(job).without_overlapping(job.key, release_after=0.2).send()
        except LOST:
            self.sent.lost_sends += 1
            self.sent.unknown.add(job.n)
        else:
            self.sent.ok[job.n] = receipt.id

    async def _batch(self) -> None:
        """Sent again under its id until the store has it all, as a producer that was cut off would."""
        batch_id = new_id()
        numbers = [self._n() for _ in range(self._dice.randint(3, 25))]
        hopeless = {n for n in numbers if self._dice.random() < 0.05}
        while True:
            members = [Hopeless(n=n) if n in hopeless else Work(n=n) for n in numbers]
            batch = Batch(members, id=batch_id).then(TellBatch(kind="then", of=batch_id))
            batch = batch.finally_(TellBatch(kind="finally", of=batch_id))
            try:
                await batch.catch(TellBatch(kind="catch", of=batch_id)).send(self._manager)
            except LOST:
                self.sent.lost_sends += 1
                await asyncio.sleep(0.2)
            else:
                self.sent.batches[batch_id] = numbers
                return

    async def _chain(self) -> None:
        length = self._dice.randint(2, 6)
        broken = self._dice.randrange(length) if self._dice.random() < 0.2 else None
        links = [Link(n=self._n(), broken=index == broken) for index in range(length)]
        chain_id = new_id()
        chain = Chain(*links, id=chain_id).on_failure(Tell(kind="on_failure", of=chain_id))
        try:
            await chain.send(self._manager)
        except LOST:
            self.sent.lost_sends += 1
            self.sent.unknown |= {link.n for link in links}
        else:
            self.sent.chains[chain_id] = length, broken


async def _nothing() -> None:
    return
