"""Reading: records move from aiokafka's buffers into the partitions' inboxes as soon as they arrive.

There is one fetch at a time to each broker, and it waits there for a while when its partitions have nothing new.
A partition takes part in it only if its buffer is empty: one that was left half drained would have to wait for the
others' fetch to end. So buffers are always emptied, up to a bound far above what is taken at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from nimbusq.errors import StoreError
from nimbusq_kafka.delays import Delays
from nimbusq_kafka.member import Member
from nimbusq_kafka.news import within
from nimbusq_kafka.partition import Partition

log = logging.getLogger("nimbusq.kafka")

_INBOXES: Final = 20_000
"""Records in the inboxes of all partitions."""
_LEAST: Final = 500
"""Records that any inbox may have."""
_BYTES: Final = 4 * 1024 * 1024
"""Bytes that any inbox may have."""
_CHUNK: Final = 1_000
_WAIT: Final = 5.0
_RETRY: Final = 0.5
_PATIENCE: Final = 20
"""Errors in a row after which the session ends, for a new one to begin."""


class Reader:
    """Owned by the consumer's event loop. Reading is not claiming: what an inbox holds is nobody's."""

    def __init__(self, member: Member, delays: Delays) -> None:
        self._member = member
        self._delays = delays
        self._troubles = 0

    async def run(self) -> None:
        """Read, until cancelled. Raises what goes on failing."""
        while True:
            appetite = self._member.appetite.listen()
            partitions = [one for one in self._member.partitions if self._has_room(one)]
            try:
                await self._read(partitions, appetite)
                self._troubles = 0
            except StoreError as error:
                self._troubles += 1
                if self._troubles > _PATIENCE:
                    raise
                log.warning("cannot read: %s", error)
                await asyncio.sleep(_RETRY)

    async def _read(self, partitions: list[Partition], appetite: asyncio.Event) -> None:
        """Read once, or until other partitions want to be read too."""
        if not partitions:
            await within(_WAIT, appetite.wait())
            return
        reading = asyncio.create_task(self._member.read(partitions, timeout=_WAIT, most=_CHUNK))
        changing = asyncio.create_task(appetite.wait())
        try:
            await asyncio.wait({reading, changing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()  # which loses nothing: it takes records in the step in which it ends
            changing.cancel()
            await asyncio.wait({reading, changing})
        if not reading.cancelled():
            reading.result()
        self._sort(partitions)

    def _sort(self, partitions: list[Partition]) -> None:
        arrived = False
        for partition in partitions:
            if partition.inbox and partition.delay is not None:
                self._delays.line_up(partition)
            arrived = arrived or bool(partition.inbox)
        if arrived:
            self._member.news.ring()

    def _has_room(self, partition: Partition) -> bool:
        """Reading stops at the bound and goes on at half of it."""
        if partition.delay is not None:
            return self._delays.has_room(partition)
        most = max(_LEAST, _INBOXES // max(1, len(self._member.partitions)))
        if partition.reading:
            partition.reading = len(partition.inbox) < most and partition.inbox_bytes < _BYTES
        else:
            partition.reading = len(partition.inbox) <= most // 2 and partition.inbox_bytes <= _BYTES // 2
        partition.low = most // 2
        return partition.reading
