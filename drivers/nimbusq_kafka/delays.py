"""Delay topics, read ahead: the records wait in a heap, and each is written to its queue's topic when it is due.

The same windows and commits as for jobs, so that a crash between writing and committing duplicates a record (with
the same id) and never loses one. What is read ahead is bounded. Behind the bound there may be jobs that are due
sooner, but none sooner than their delay class allows: only when that moment comes are the oldest records of the
partition written anew, with the time that is left to them, to make room for reading on.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nimbusq.errors import StoreError
from nimbusq_kafka.broker_clock import BrokerClock
from nimbusq_kafka.member import Member
from nimbusq_kafka.news import within
from nimbusq_kafka.outbox import Outbox
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.records import Counters, Outgoing, Received, again, due_at
from nimbusq_kafka.topics import DelayClass, TopicNames
from nimbusq_kafka.troubles import translated
from nimbusq_kafka.window import FULL

log = logging.getLogger("nimbusq.kafka")

_CHUNK: Final = 500
"""Most records of one step, so that a rebalance never waits long for one."""
READ_AHEAD: Final = 50_000
"""Records of one partition in the heap."""
_LOOK: Final = 1.0
_RETRY: Final = 1.0
_ASK_CLOCK_WITHIN: Final = 60.0
"""Only when a job is due this soon need the brokers' time be known well."""


@dataclass(slots=True, order=True)
class Waiting:
    """A record in the heap."""

    due: float
    order: int
    partition: Partition
    record: Received
    counters: Counters


class Delays:
    """Owned by the consumer's event loop: `line_up` fills the heap, `forward` empties it."""

    def __init__(self, member: Member, outbox: Outbox, names: TopicNames, clock: BrokerClock) -> None:
        self._member = member
        self._outbox = outbox
        self._names = names
        self._clock = clock
        self._heap: list[Waiting] = []
        self._order = itertools.count()
        self._sooner = asyncio.Event()
        """The heap's first record has changed."""

    # --- reading -----------------------------------------------------------------------------------------------

    def line_up(self, partition: Partition) -> None:
        """Move the records of the inbox into the heap."""
        first = self._heap[0] if self._heap else None
        for record in partition.take(len(partition.inbox)):
            counters = Counters.of(record)
            waiting = Waiting(due_at(record, counters), next(self._order), partition, record, counters)
            heapq.heappush(self._heap, waiting)
            partition.ahead += 1
        if self._heap and self._heap[0] is not first:
            self._sooner.set()

    def has_room(self, partition: Partition) -> bool:
        """The partition may be read on."""
        return partition.ahead < READ_AHEAD and partition.window.size < FULL

    async def make_room(self) -> None:
        """Once a second, where reading has stopped and what is behind may be due: move the oldest on."""
        while True:
            await asyncio.sleep(_LOOK)
            self._forget_the_gone()
            for partition in self._member.partitions:
                if partition.delay is not None and not self.has_room(partition):
                    await self._make_room_in(partition, partition.delay)

    async def _make_room_in(self, partition: Partition, delay: DelayClass) -> None:
        if partition.read_until + delay.least > self._clock.now():
            return  # whatever is behind was written later still, and is not due yet
        held = [waiting for waiting in self._heap if waiting.partition is partition]
        oldest = sorted(held, key=lambda waiting: waiting.record.offset)[:_CHUNK]
        out = {id(waiting) for waiting in oldest}
        self._heap = [waiting for waiting in self._heap if id(waiting) not in out]
        heapq.heapify(self._heap)
        await self._hand_over(oldest)
        self._member.appetite.ring()

    def _forget_the_gone(self) -> None:
        """Drop what belongs to partitions that another member has now."""
        if any(not waiting.partition.alive for waiting in self._heap):
            self._heap = [waiting for waiting in self._heap if waiting.partition.alive]
            heapq.heapify(self._heap)

    # --- forwarding --------------------------------------------------------------------------------------------

    async def forward(self) -> None:
        """Write what is due to the ready topics, until cancelled."""
        while True:
            self._sooner.clear()
            if self._clock.stale and self._until_due() < _ASK_CLOCK_WITHIN:
                await self.ask_clock()
            if (seconds := self._until_due()) > 0:
                await within(min(seconds, _ASK_CLOCK_WITHIN / 2), self._sooner.wait())
                continue
            if not await self._hand_over(self._pop_due()):
                await asyncio.sleep(_RETRY)

    def _until_due(self) -> float:
        return self._heap[0].due - self._clock.now() if self._heap else float("inf")

    def _pop_due(self) -> list[Waiting]:
        now, due = self._clock.now(), list[Waiting]()
        while self._heap and self._heap[0].due <= now and len(due) < _CHUNK:
            due.append(heapq.heappop(self._heap))
        return due

    async def _hand_over(self, batch: Sequence[Waiting]) -> bool:
        """Write records anew, due or not, and mark their offsets; those that could not be are lined up again.
        Whether all were."""
        async with self._member.gate.step():
            batch = [waiting for waiting in batch if waiting.partition.alive]
            failures = await self._write(batch) if batch else []
            for waiting, failure in zip(batch, failures, strict=True):
                if failure is not None:
                    heapq.heappush(self._heap, waiting)
                    continue
                waiting.partition.window.finish(waiting.record.offset)
                waiting.partition.ahead -= 1
                self._member.committer.touch(waiting.partition)
        failed = [failure for failure in failures if failure is not None]
        if failed:
            log.warning("%d delayed jobs stay for now: %s", len(failed), translated(failed[0], "forwarding"))
        return not failed

    async def _write(self, batch: Sequence[Waiting]) -> Sequence[BaseException | None]:
        try:
            return await self._outbox.send([self._moved(waiting) for waiting in batch])
        except StoreError as error:
            return [error] * len(batch)

    def _moved(self, waiting: Waiting) -> Outgoing:
        left = max(0.0, waiting.due - self._clock.now())
        topic = self._names.for_delay(waiting.partition.queue, left)
        return again(waiting.counters, waiting.record, topic=topic, delay=left, now=waiting.due)

    # --- the clock ---------------------------------------------------------------------------------------------

    async def ask_clock(self) -> None:
        """Learn the brokers' time by appending a record."""
        try:
            await self._outbox.send([Outgoing(topic=self._names.clock, value=b"", headers=[])])
        except StoreError as error:
            log.warning("the brokers' time is not known: %s", error)
