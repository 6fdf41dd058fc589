"""Claim: take records up to the free slots, partition by partition, and commit that they are taken."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from nimbusq.driver import Claimed, Lost, Want
from nimbusq_kafka.broker_clock import BrokerClock
from nimbusq_kafka.claims import claim_of, lost_run
from nimbusq_kafka.hands import Hands, Hold, Stage
from nimbusq_kafka.member import Member
from nimbusq_kafka.news import within
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.records import Counters, Received
from nimbusq_kafka.troubles import CommitRefused

_ENDINGS: Final = 50
"""Most endings of one call."""
_HANDFUL: Final = 32
"""Jobs for which it is worth while to go on to another partition, since each one costs in every commit."""


@dataclass(slots=True)
class Catch:
    """What one call has taken so far."""

    want: Want
    room: int
    now: float
    holds: list[Hold] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    endings: int = 0


class Claimer:
    """Owned by the consumer's event loop."""

    def __init__(self, member: Member, hands: Hands, clock: BrokerClock) -> None:
        self._member = member
        self._hands = hands
        self._committer = member.committer
        self._clock = clock
        self._turns: Counter[str] = Counter()

    async def claim(self, want: Want) -> Claimed:
        """See `nimbusq.driver.Adapter.claim`. Cancelled at any moment, what it took is as if never taken."""
        if held := [hold for hold in self._hands.of_token(want.token) if hold.stage is Stage.RUNNING]:
            return Claimed([hold.claim for hold in held])
        loop = asyncio.get_running_loop()
        deadline = loop.time() + want.wait
        while True:
            news = self._member.news.listen()
            catch = Catch(want, want.limit, self._clock.now())
            try:
                self._collect(catch)
                await self._confirm(catch)
            except BaseException:  # cancelled, or no answer: the next commit says that nothing has started
                self.void(catch.holds)
                raise
            if catch.holds or catch.lost:
                return Claimed([hold.claim for hold in catch.holds], catch.lost)
            if not await within(deadline - loop.time(), news.wait()):
                return Claimed()

    # --- taking ------------------------------------------------------------------------------------------------

    def _collect(self, catch: Catch) -> None:
        """Serve the lanes in order, the partitions of each in turn; with nothing free, lost leases only."""
        for lane in catch.want.lanes:
            partitions = self._in_turn(lane.queue)
            room = min(lane.limit, catch.room)
            if room > 0:
                catch.room -= self._serve(catch, partitions, room)
            else:
                for partition in partitions:
                    self._look_for_lost(catch, partition)

    def _in_turn(self, queue: str) -> list[Partition]:
        """The queue's partitions, beginning with another one each time."""
        partitions = self._member.ready_partitions(queue)
        self._turns[queue] += 1  # counted for each queue, or of two each would see every other turn
        start = self._turns[queue] % len(partitions) if partitions else 0
        return partitions[start:] + partitions[:start]

    def _serve(self, catch: Catch, partitions: Sequence[Partition], room: int) -> int:
        """Take up to `room` jobs to run: few from one partition, many in equal parts, until all have given theirs."""
        taken = 0
        while partitions and taken < room:
            parts = min(len(partitions), max(1, (room - taken) // _HANDFUL))
            quantum = -(-(room - taken) // parts)
            fruitful = []
            for partition in partitions:
                got = self._take(catch, partition, min(quantum, room - taken))
                taken += got
                if got:
                    fruitful.append(partition)
            partitions = fruitful
        return taken

    def _take(self, catch: Catch, partition: Partition, most: int) -> int:
        most = min(most, partition.window.room)
        if most <= 0:
            return 0
        taken = 0
        while partition.inbox and taken < most and catch.endings < _ENDINGS:
            before = catch.endings  # those with an ending take no slot
            records = partition.take(min(most - taken, _ENDINGS - before))
            self._start(catch, partition, records)
            taken += len(records) - (catch.endings - before)
        if not partition.reading and len(partition.inbox) <= partition.low:
            self._member.appetite.ring()
        return taken

    def _look_for_lost(self, catch: Catch, partition: Partition) -> None:
        """Tell the runs that a former owner left behind, and hand out those that may not run again."""
        left = (
            [record for record in partition.inbox if record.offset in partition.missed]
            if partition.missed
            else []
        )
        for record in left[:_ENDINGS]:
            told, was_the_last = lost_run(partition, record)
            if not was_the_last:
                self._tell(catch, partition, record.offset, told)
            elif catch.endings < _ENDINGS:
                partition.take_out(record)
                self._start(catch, partition, [record])

    def _start(self, catch: Catch, partition: Partition, records: Sequence[Received]) -> None:
        token, now = catch.want.token, catch.now
        if partition.missed:
            for record in records:
                if record.offset in partition.missed:
                    self._tell(catch, partition, record.offset, lost_run(partition, record)[0])
        holds = []
        for record in records:
            counters = Counters.of(record)
            claim = claim_of(partition, record, counters, token=token, now=now)
            holds.append(Hold(claim, partition, record, counters))
            if claim.ending is not None:
                catch.endings += 1
        partition.window.start(*[record.offset for record in records])
        self._hands.take(token, holds)
        catch.holds += holds

    def _tell(self, catch: Catch, partition: Partition, offset: int, told: Lost) -> None:
        partition.missed.discard(offset)
        catch.lost.append(told)

    # --- confirming --------------------------------------------------------------------------------------------

    async def _confirm(self, catch: Catch) -> None:
        """Nothing starts before the commit that says so; a rebalance voids what was to be committed."""
        if not catch.holds:
            return
        taken = Counter(hold.partition for hold in catch.holds)
        self._committer.touch(*taken)
        covered = self._committer.covered()
        asyncio.get_running_loop().call_soon(_decode_ahead, taken)  # when the commit has been sent
        try:
            await covered
        except CommitRefused:
            self.void(catch.holds)
        catch.holds = [hold for hold in catch.holds if hold.held]
        for hold in catch.holds:
            hold.stage = Stage.RUNNING

    def void(self, holds: Iterable[Hold]) -> None:
        """As if these claims had never been made: their records are to be claimed again, in their old order."""
        for hold in sorted(holds, key=lambda hold: -hold.record.offset):
            if not hold.held or hold.stage is Stage.ENDED:
                continue
            self._hands.drop(hold)
            hold.partition.window.withdraw(hold.record.offset)
            hold.partition.put_back(hold.record)
            self._committer.touch(hold.partition)
        self._member.news.ring()


def _decode_ahead(taken: Counter[Partition]) -> None:
    """The next claim will want as many again; while the commit is under way there is time to decode them."""
    for partition, count in taken.items():
        partition.decode_ahead(count)
