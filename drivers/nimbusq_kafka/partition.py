"""One assigned partition: its window, and the records that were read but are in nobody's hands yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from aiokafka.structs import TopicPartition

from nimbusq.envelope import Envelope, Unreadable, decode
from nimbusq_kafka.records import Received
from nimbusq_kafka.topics import DelayClass
from nimbusq_kafka.window import Window


class Partition:
    """Owned by the consumer's event loop.

    inbox: records read and not started, in order. seen: the next offset to be read. alive: it is this member's.
    missed: offsets whose run a former owner has left behind, until they have been told as lost.
    """

    __slots__ = (
        "ahead",
        "alive",
        "committed",
        "decoded",
        "delay",
        "deleted",
        "inbox",
        "inbox_bytes",
        "low",
        "missed",
        "queue",
        "read_until",
        "reading",
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
        self.decoded: dict[int, Envelope | Unreadable] = {}
        """Envelopes of the records that are the next to be taken, by offset; see `decode_ahead`."""
        self.inbox_bytes = 0
        self.seen = window.base
        self.committed = window.base
        """The low watermark that the brokers know."""
        self.deleted = 0
        """The low watermark below which records have been deleted."""
        self.read_until = 0.0
        """When the newest record that was read had been appended, on the brokers' clock."""
        self.alive = True
        self.reading = True
        """False while the inbox is full; see `nimbusq_kafka.reading`."""
        self.low = 0
        """Records in the inbox at which reading goes on."""
        self.ahead = 0
        """Of a delay partition: its records in the heap."""

    def accept(self, records: Iterable[Received]) -> None:
        """Put what was read into the inbox, but for what is done with.

        Offsets that Kafka left out do not exist (any more). What was seen before comes again after a rebalance.
        """
        for record in records:
            if record.offset < self.seen:
                continue
            if record.offset > self.seen:
                self.window.skip(self.seen, record.offset)
            self.seen = record.offset + 1
            self.read_until = record.timestamp / 1000
            if not self.window.is_done(record.offset):
                self.put(record)

    def put(self, record: Received) -> None:
        self.inbox.append(record)
        self.inbox_bytes += _size(record)

    def put_back(self, record: Received) -> None:
        """It is the next to be taken."""
        self.inbox.appendleft(record)
        self.inbox_bytes += _size(record)

    def take(self, most: int) -> list[Received]:
        """The first records of the inbox."""
        taken = [self.inbox.popleft() for _ in range(min(most, len(self.inbox)))]
        self.inbox_bytes -= sum(map(_size, taken))
        return taken

    def decode_ahead(self, most: int) -> None:
        """Decode the first records of the inbox, while there is nothing else to do."""
        decoded = self.decoded
        for record in islice(self.inbox, most):
            if record.offset not in decoded:
                decoded[record.offset] = decode(record.value or b"")

    def envelope_of(self, record: Received) -> Envelope | Unreadable:
        """What the record, which has been taken, holds."""
        return self.decoded.pop(record.offset, None) or decode(record.value or b"")

    def take_out(self, record: Received) -> None:
        """This record of the inbox, wherever it is."""
        self.inbox.remove(record)
        self.inbox_bytes -= _size(record)


def _size(record: Received) -> int:
    return len(record.value or b"")
