"""Commits of the group's present generation."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.errors import (
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    KafkaError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from nimbusq_kafka.generation import Generation

OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(7, "")}


class Coordinator:
    """aiokafka's, as far as it is used; its next commit may fail."""

    generation = 3
    member_id = "me"

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.error: KafkaError | None = None

    async def _do_commit_offsets(self, _: Any, offsets: Any) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.sent.append(offsets)


class Consumer:
    """Its own commit goes through the coordinator's as well, after a lock and a task."""

    def __init__(self) -> None:
        self._coordinator = Coordinator()
        self.commits = 0

    async def commit(self, offsets: Any) -> None:
        self.commits += 1
        await self._coordinator._do_commit_offsets(object(), offsets)


async def test_a_commit_is_sent_without_the_consumers_own() -> None:
    consumer = Consumer()
    await Generation(consumer).commit(OFFSETS)
    assert (consumer._coordinator.sent, consumer.commits) == ([OFFSETS], 0)


@pytest.mark.parametrize("error", [RebalanceInProgressError(), UnknownMemberIdError()])
async def test_a_refused_commit_is_not_repeated(error: KafkaError) -> None:
    consumer = Consumer()
    generation = Generation(consumer)
    consumer._coordinator.error = error
    with pytest.raises(CommitFailedError):
        await generation.commit(OFFSETS)
    assert (consumer._coordinator.sent, consumer.commits) == ([], 0)


async def test_another_generation_commits_nothing_until_it_is_taken_up() -> None:
    consumer = Consumer()
    generation = Generation(consumer)
    consumer._coordinator.generation = 4
    with pytest.raises(CommitFailedError):
        await generation.commit(OFFSETS)
    assert consumer._coordinator.sent == []
    generation.take_up()
    await generation.commit(OFFSETS)
    assert consumer._coordinator.sent == [OFFSETS]


async def test_what_may_succeed_elsewhere_is_left_to_the_consumer() -> None:
    consumer = Consumer()
    generation = Generation(consumer)
    consumer._coordinator.error = GroupCoordinatorNotAvailableError()
    await generation.commit(OFFSETS)
    assert (consumer._coordinator.sent, consumer.commits) == ([OFFSETS], 1)


async def test_what_cannot_succeed_is_raised() -> None:
    consumer = Consumer()
    generation = Generation(consumer)
    consumer._coordinator.error = OffsetMetadataTooLargeError()
    with pytest.raises(OffsetMetadataTooLargeError):
        await generation.commit(OFFSETS)
    assert consumer.commits == 0
