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
from nimbusq_kafka.outbox import Outbox
from nimbusq_kafka.partition import READ_AHEAD, Partition
from nimbusq_kafka.records import Counters, Outgoing, Received, again, due_at
from nimbusq_kafka.topics import TopicNames
from nimbusq_kafka.troubles import translated
from nimbusq_kafka.window import FULL

log = logging.getLogger("nimbusq.kafka")

_CHUNK: Final = 500
"""Most records of one step, so that a rebalance never waits long for one."""
_LOOK: Final = 1.0
"""Seconds after which the reader looks again which partitions have room."""
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
    """Owned by the consumer's event loop: `read` fills the heap, `forward` empties it."""

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

    async def read(self) -> None:
        """Read ahead, until cancelled."""
        while True:
            self._forget_the_gone()
            partitions = [one for one in self._member.delay_partitions() if await self._has_room(one)]
            if not partitions:
                await self._pause(_LOOK)
                continue
            try:
                await self._member.read(partitions, timeout=_LOOK, most=_CHUNK)
            except StoreError as error:
                log.warning("delayed jobs cannot be read: %s", error)
                await asyncio.sleep(_RETRY)
            for partition in partitions:
                self._line_up(partition)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._member.news.wait()
        except TimeoutError:
            pass

    def _line_up(self, partition: Partition) -> None:
        first = self._heap[0] if self._heap else None
        while partition.inbox:
            record = partition.inbox.popleft()
            counters = Counters.of(record)
            heapq.heappush(
                self._heap, Waiting(due_at(record, counters), next(self._order), partition, record, counters)
            )
        if self._heap and self._heap[0] is not first:
            self._sooner.set()

    def _forget_the_gone(self) -> None:
        """Drop what belongs to partitions that another member has now."""
        if any(not waiting.partition.alive for waiting in self._heap):
            self._heap = [waiting for waiting in self._heap if waiting.partition.alive]
            heapq.heapify(self._heap)

    # --- the bound ---------------------------------------------------------------------------------------------

    async def _has_room(self, partition: Partition) -> bool:
        held = self._held(partition)
        if len(held) < READ_AHEAD and partition.window.size < FULL:
            return True
        assert partition.delay is not None
        if partition.read_until + partition.delay.least > self._clock.now():
            return False  # whatever is behind is not due yet
        await self._move_on(held)
        return False

    def _held(self, partition: Partition) -> list[Waiting]:
        return [waiting for waiting in self._heap if waiting.partition is partition]

    async def _move_on(self, held: Sequence[Waiting]) -> None:
        """Write the oldest records anew with what is left of their delays, so that the window moves forward."""
        oldest = sorted(held, key=lambda waiting: waiting.record.offset)[:_CHUNK]
        moved = await self._hand_over(oldest)
        self._heap = [waiting for waiting in self._heap if id(waiting) not in moved]
        heapq.heapify(self._heap)

    # --- forwarding --------------------------------------------------------------------------------------------

    async def forward(self) -> None:
        """Write what is due to the ready topics, until cancelled."""
        while True:
            self._sooner.clear()
            await self._ask_clock()
            if (seconds := self._until_due()) > 0:
                await self._sleep(seconds)
                continue
            due = self._pop_due()
            moved = await self._hand_over(due)
            for waiting in due:
                if id(waiting) not in moved and waiting.partition.alive:
                    heapq.heappush(self._heap, waiting)
            if len(moved) < len(due):
                await asyncio.sleep(_RETRY)

    def _until_due(self) -> float:
        return self._heap[0].due - self._clock.now() if self._heap else float("inf")

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(min(seconds, _ASK_CLOCK_WITHIN / 2)):
                await self._sooner.wait()
        except TimeoutError:
            pass

    def _pop_due(self) -> list[Waiting]:
        now, due = self._clock.now(), list[Waiting]()
        while self._heap and self._heap[0].due <= now and len(due) < _CHUNK:
            due.append(heapq.heappop(self._heap))
        return due

    async def _hand_over(self, batch: Sequence[Waiting]) -> set[int]:
        """Write records anew, due or not, and mark their offsets; the ids of those that were."""
        async with self._member.gate.step():
            batch = [waiting for waiting in batch if waiting.partition.alive]
            if not batch:
                return set()
            failures = await self._write(batch)
            moved = [waiting for waiting, failure in zip(batch, failures, strict=True) if failure is None]
            for waiting in moved:
                waiting.partition.window.finish(waiting.record.offset)
                self._member.committer.touch(waiting.partition)
        for failure in failures:
            if failure is not None:
                log.warning("delayed jobs stay where they are: %s", translated(failure, "forwarding"))
                break
        return {id(waiting) for waiting in moved}

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

    async def _ask_clock(self) -> None:
        """Learn the brokers' time by appending a record, when a job is nearly due and it is not known well."""
        if not self._clock.stale or self._until_due() > _ASK_CLOCK_WITHIN:
            return
        try:
            await self._outbox.send([Outgoing(topic=self._names.clock, value=b"", headers=[])])
        except StoreError as error:
            log.warning("the brokers' time is not known: %s", error)
