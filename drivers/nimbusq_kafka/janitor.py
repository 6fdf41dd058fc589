"""Housekeeping of a member: records that all are done with are deleted, queues that nobody asks for are left."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Set
from typing import Final

from nimbusq.errors import NimbusqError
from nimbusq_kafka.claiming import Claimer
from nimbusq_kafka.cluster import Cluster
from nimbusq_kafka.hands import Hands, Stage
from nimbusq_kafka.member import Member

log = logging.getLogger("nimbusq.kafka")

_EVERY: Final = 15.0
_PATIENCE: Final = 60.0
"""Seconds without a claim, and not less than two leases, after which a queue counts as not worked on here."""

_SETTLING: Final = 60.0
"""Seconds after the last attempt to settle a run, at which its worker has surely given up."""


class Janitor:
    """Owned by the consumer's event loop.

    Kafka forgets old records by age or size. For jobs that would be a loss, so that the topics keep everything and
    this deletes what lies below the committed offsets.
    """

    def __init__(
        self, member: Member, cluster: Cluster, hands: Hands, claimer: Claimer, *, delete: bool
    ) -> None:
        self._member = member
        self._cluster = cluster
        self._hands = hands
        self._claimer = claimer
        self._delete = delete
        self._asked: dict[str, float] = {}

    def asked_for(self, queues: Iterable[str], lease: float) -> None:
        """A claim wants these queues."""
        until = time.monotonic() + max(_PATIENCE, 2 * lease)
        for queue in queues:
            self._asked[queue] = max(until, self._asked.get(queue, 0.0))

    def wanted(self) -> Set[str]:
        """The queues to be subscribed to."""
        return frozenset(self._asked)

    async def run(self) -> None:
        """Tidy up every 15 s, until cancelled or until nobody has claimed for so long that the group can be left
        to others."""
        while True:
            await asyncio.sleep(_EVERY)
            self._take_back()
            try:
                await self._delete_records()
                if not await self._leave_queues():
                    return
            except NimbusqError as error:
                log.warning("housekeeping: %s", error)

    async def _delete_records(self) -> None:
        if not self._delete:
            return
        done = {one: one.committed for one in self._member.partitions if one.committed > max(one.deleted, 0)}
        if done:
            await self._cluster.delete_before({partition.tp: offset for partition, offset in done.items()})
            for partition, offset in done.items():
                partition.deleted = offset

    async def _leave_queues(self) -> bool:
        """Let other members have what this one does not claim from; False when that is everything."""
        now = time.monotonic()
        busy = {partition.queue for partition in self._member.partitions if partition.window.running}
        self._asked = {queue: until for queue, until in self._asked.items() if until > now or queue in busy}
        if not self._asked:
            return False
        await self._member.subscribe(self.wanted)
        return True

    def _take_back(self) -> None:
        """Runs that have ended, but whose worker has given up settling them while Kafka was away: nobody else will
        ever say what became of them, so they count as lost."""
        limit = time.monotonic() - _SETTLING
        tried = [hold for hold in self._hands.at(Stage.RUNNING) if hold.tried_at is not None]
        abandoned = [hold for hold in tried if (hold.tried_at or 0.0) < limit]
        for hold in abandoned:
            hold.partition.window.give_up(hold.record.offset)
            hold.partition.missed.add(hold.record.offset)
        self._claimer.void(abandoned)
