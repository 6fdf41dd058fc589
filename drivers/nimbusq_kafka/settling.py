"""Settle: write what follows, mark the offset as finished, and wait for the commit that says so."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from nimbusq.driver import Done, PutBack, Retry, Settled, Settlement, SettleStatus
from nimbusq.errors import StoreUnavailable
from nimbusq_kafka.broker_clock import BrokerClock
from nimbusq_kafka.cluster import Cluster
from nimbusq_kafka.config import DEADLINE
from nimbusq_kafka.hands import Hands, Hold, Stage
from nimbusq_kafka.member import Member
from nimbusq_kafka.outbox import Outbox
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.records import Outgoing, again, parked, pushed
from nimbusq_kafka.topics import TopicNames
from nimbusq_kafka.troubles import CommitRefused, translated

_SETTLED: Final = Settled(SettleStatus.SETTLED)
_LOST: Final = Settled(SettleStatus.LOST)


class Settling:
    """Owned by the consumer's event loop.

    A retry or a release is a new record with the counters moved on, and the old one is finished. A crash between
    the two leaves both: the job runs once more, with the same id.
    """

    def __init__(
        self,
        member: Member,
        hands: Hands,
        outbox: Outbox,
        cluster: Cluster,
        names: TopicNames,
        clock: BrokerClock,
    ) -> None:
        self._member = member
        self._cluster = cluster
        self._hands = hands
        self._outbox = outbox
        self._names = names
        self._clock = clock

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Answers in order. Raises StoreUnavailable; the same call again goes on where this one stopped."""
        pairs = self._held(settlements)
        try:
            async with asyncio.timeout(2 * DEADLINE):  # it may have to wait for a rebalance
                await self._cluster.ensure(one.queue for settlement in settlements for one in settlement.push)
                await self._follow([(hold, settlement) for hold, settlement in pairs if hold is not None])
                await self._covered([hold for hold, _ in pairs if hold is not None])
        except TimeoutError as error:
            raise StoreUnavailable("Kafka did not confirm the settlements in time.") from error
        return [self._answer(hold) for hold, _ in pairs]

    def _held(self, settlements: Sequence[Settlement]) -> list[tuple[Hold | None, Settlement]]:
        """Each settlement with its hold; of two for one claim the first has it."""
        now = time.monotonic()
        taken: set[int] = set()
        pairs: list[tuple[Hold | None, Settlement]] = []
        for settlement in settlements:
            hold = self._hands.find(settlement.claim)
            if hold is not None and id(hold) in taken:
                hold = None
            if hold is not None:
                taken.add(id(hold))
                hold.tried_at = now
            pairs.append((hold, settlement))
        return pairs

    async def _follow(self, pairs: Sequence[tuple[Hold, Settlement]]) -> None:
        """Write what follows and mark the offsets, as one step that no rebalance comes between."""
        async with self._member.gate.step():
            open_ones = [
                (hold, self._records(hold, settlement))
                for hold, settlement in pairs
                if hold.partition.alive and hold.stage is not Stage.ENDED
            ]
            failures = await self._write([record for _, records in open_ones for record in records])
            self._mark(_written(open_ones, failures))
        self._member.ended.ring()
        for failure in failures:
            if failure is not None:
                raise translated(failure, "settling") from failure

    def _mark(self, holds: Iterable[Hold]) -> None:
        """These offsets are finished; the next commit says so."""
        finished: defaultdict[Partition, list[int]] = defaultdict(list)
        for hold in holds:
            hold.stage = Stage.ENDED
            finished[hold.partition].append(hold.record.offset)
        for partition, offsets in finished.items():
            partition.window.finish(*offsets)
        self._member.committer.touch(*finished)

    async def _write(self, records: Sequence[Outgoing]) -> list[BaseException | None]:
        return await self._outbox.send(records) if records else []

    def _records(self, hold: Hold, settlement: Settlement) -> list[Outgoing]:
        """Everything that must be in Kafka before the claim's offset may be marked."""
        names = self._names
        records = [pushed(one, names.for_delay(one.queue, one.delay)) for one in settlement.push]
        match settlement.outcome:
            case Done():
                pass
            case Retry(delay=delay):
                records.append(self._again(hold, delay))
            case PutBack(delay=delay, counted=counted):
                records.append(self._again(hold, delay, given_back=True, released=counted))
            case _ if settlement.failed is not None:
                records.append(parked(settlement.failed, names.failed(hold.claim.queue)))
            case _:
                pass
        return records

    def _again(
        self, hold: Hold, delay: float, *, given_back: bool = False, released: bool = False
    ) -> Outgoing:
        claim = hold.claim
        counted = claim.attempt - (given_back and claim.ending is None)
        counters = replace(
            hold.counters, attempts=counted, releases=claim.releases + released, fence=claim.fence
        )
        topic = self._names.for_delay(claim.queue, delay)
        return again(counters, hold.record, topic=topic, delay=delay, now=self._clock.now())

    async def _covered(self, holds: Sequence[Hold]) -> None:
        """A settlement counts once the commit that covers its mark has succeeded."""
        while any(hold.partition.alive for hold in holds):
            try:
                await self._member.committer.covered(at_once=False)
                return
            except CommitRefused:
                await self._member.until_steady()

    def _answer(self, hold: Hold | None) -> Settled:
        if hold is None or not hold.partition.alive:
            return _LOST
        self._hands.drop(hold)
        return _SETTLED


def _written(
    pairs: Sequence[tuple[Hold, Sequence[Outgoing]]], failures: Sequence[BaseException | None]
) -> Iterator[Hold]:
    """Those of whose records every one has been written; `failures` tells it of all records in order."""
    answers = iter(failures)
    for hold, records in pairs:
        if not records or all(error is None for error in list(islice(answers, len(records)))):
            yield hold
