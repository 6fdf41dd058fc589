"""How queues are named in Kafka, and which delay topic a delay belongs to.

A queue has one topic of jobs that are due, four of jobs that are not, by how long they wait, and one of jobs that
failed where no store keeps them. Sorting delays by length keeps a job that is due in a minute from waiting
behind a hundred thousand that are due next week.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nimbusq.errors import InvalidName
from nimbusq_kafka.config import KafkaConfig

_DEFAULT_PREFIX: Final = "nimbusq"
_RESERVED = re.compile(r".*\.(failed|delay\.(1m|1h|1d|long))")


@dataclass(frozen=True, slots=True)
class DelayClass:
    """Delays of more than `least` seconds and at most `most`."""

    name: str
    least: float
    most: float


DELAYS: Final = (
    DelayClass("1m", 0.0, 60.0),
    DelayClass("1h", 60.0, 3_600.0),
    DelayClass("1d", 3_600.0, 86_400.0),
    DelayClass("long", 86_400.0, float("inf")),
)


def delay_class(delay: float) -> DelayClass:
    """Where a job waits that is due in `delay` seconds."""
    return next(one for one in DELAYS if delay <= one.most)


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names that one program uses. Under another prefix than the default one all of them, and the consumer
    group, begin with it, so that programs on one cluster never meet."""

    config: KafkaConfig

    @property
    def group(self) -> str:
        config = self.config
        return config.group_id if config.prefix == _DEFAULT_PREFIX else f"{config.prefix}.{config.group_id}"

    @property
    def clock(self) -> str:
        """The topic from whose append times the brokers' clock is read."""
        return f"{self.config.prefix}.-clock"

    def ready(self, queue: str) -> str:
        """Jobs that are due. Raises InvalidName for a queue whose topic could be another queue's."""
        if _RESERVED.fullmatch(queue):
            raise InvalidName(
                f"queue name {queue!r} is not allowed on kafka: names that end in .failed or .delay.1m, .1h, .1d, "
                ".long are those of topics beside a queue. Use a dash instead of the last dot."
            )
        if queue == "default" and self.config.prefix == _DEFAULT_PREFIX:
            return self.config.topic
        return f"{self.config.prefix}.{queue}"

    def delayed(self, queue: str, delay: DelayClass) -> str:
        """Jobs that are due later."""
        return f"{self.ready(queue)}.delay.{delay.name}"

    def failed(self, queue: str) -> str:
        """Jobs that failed for good, where there is no store."""
        return f"{self.ready(queue)}.failed"

    def for_delay(self, queue: str, delay: float) -> str:
        """Where a job is written that is due in `delay` seconds."""
        return self.delayed(queue, delay_class(delay)) if delay > 0 else self.ready(queue)

    def consumed(self, queues: Iterable[str]) -> dict[str, tuple[str, DelayClass | None]]:
        """The topics that workers of those queues read: topic -> its queue, and its class if it is a delay topic."""
        topics: dict[str, tuple[str, DelayClass | None]] = {}
        for queue in queues:
            topics[self.ready(queue)] = queue, None
            for delay in DELAYS:
                topics[self.delayed(queue, delay)] = queue, delay
        return topics
