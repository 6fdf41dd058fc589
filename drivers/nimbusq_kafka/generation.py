"""The group's generation, which aiokafka knows and does not tell, and without which no commit is safe.

A member that was thrown out forgets its generation before it joins again. aiokafka commits all the same then, as a
client without a group, and the brokers accept that while the group is empty: a worker that was stopped would
commit its old window over what others did before they left. The same goes for a commit that aiokafka repeats by
itself after a rebalance. So every commit is checked in the step in which its request is built.

This is the one place that touches aiokafka's insides; tests/drivers/test_kafka_processes.py notices if they move.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition


class Generation:
    """Guards the commits of a started consumer. Owned by its event loop."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._coordinator = consumer._coordinator
        self._commit: Callable[[Any, Any], Awaitable[None]] = self._coordinator._do_commit_offsets
        self._coordinator._do_commit_offsets = self._guarded
        self._mine = self._current

    @property
    def _current(self) -> tuple[int, str]:
        return self._coordinator.generation, self._coordinator.member_id

    def take_up(self) -> None:
        """This member has been dealt its partitions: commits of this generation are its own."""
        self._mine = self._current

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit; raises as the consumer's own `commit`, which takes a lock and a task of its own for each, and with
        them turns of an event loop that a busy worker waits for. So the request leaves at once, and only what is
        to be tried again, perhaps at another broker, goes that way.
        """
        try:
            await self._guarded(None, offsets)
        except (IllegalGenerationError, UnknownMemberIdError, RebalanceInProgressError) as error:
            raise CommitFailedError from error
        except KafkaError as error:
            if not error.retriable:
                raise
            await self._consumer.commit(offsets)

    async def _guarded(self, assignment: Any, offsets: Any) -> None:
        if self._current != self._mine:
            raise IllegalGenerationError
        await self._commit(assignment, offsets)
