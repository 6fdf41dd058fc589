"""One assigned partition: its window, and the records that were read but are in nobody's hands yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from aiokafka.structs import TopicPartition

from nimbusq_kafka.records import Received
from nimbusq_kafka.topics import DelayClass
from nimbusq_kafka.window import Window

READ_AHEAD: Final = 50_000
"""Records of a delay partition that are kept in memory."""


class Partition:
    """Owned by the consumer's event loop.

    inbox: records read and not started, in order. seen: the next offset to be read. alive: it is this member's.
    missed: offsets whose run a former owner has left behind, until they have been told as lost.
    """

    __slots__ = (
        "alive",
        "committed",
        "delay",
        "deleted",
        "inbox",
        "missed",
        "queue",
        "read_until",
        "seen",
        "tp",
        "window",
    )

    def __init__(self, tp: TopicPartition, queue: str, delay: DelayClass | None, window: Window) -> None:
        self.tp = tp
        self.queue = queue
        self.delay = delay
        self.window = window
        self.missed = set(window.take_over())
        self.inbox: deque[Received] = deque()
        self.seen = window.base
        self.committed = window.base
        """The low watermark that the brokers know."""
        self.deleted = 0
        """The low watermark below which records have been deleted."""
        self.read_until = 0.0
        """When the newest record that was read had been appended, on the brokers' clock."""
        self.alive = True

    def accept(self, records: Iterable[Received]) -> list[Received]:
        """Take what was read; the records of it that are to be done, in order.

        Offsets that Kafka left out do not exist (any more). What was seen before comes again after a rebalance.
        """
        fresh = []
        for record in records:
            if record.offset < self.seen:
                continue
            self.window.skip(self.seen, record.offset)
            self.seen = record.offset + 1
            self.read_until = record.timestamp / 1000
            if not self.window.is_done(record.offset):
                fresh.append(record)
        return fresh

    @property
    def owes(self) -> bool:
        """There are lost runs that have not been told yet."""
        return bool(self.missed)
