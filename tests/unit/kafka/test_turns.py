"""Which partition is served first: small claims take all they want from one, so that each must come first in turn."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from nimbusq_kafka.claiming import Claimer


@pytest.mark.parametrize("queues", [["a"], ["a", "b"], ["a", "b", "c"]])
@pytest.mark.parametrize("partitions", [1, 2, 4, 6])
def test_every_partition_of_every_queue_comes_first_equally_often(queues: list[str], partitions: int) -> None:
    """One count for all queues let two of them see every other partition only."""
    member: Any = SimpleNamespace(
        committer=None, ready_partitions=lambda queue: [(queue, number) for number in range(partitions)]
    )
    unused: Any = None
    claimer = Claimer(member, unused, unused)
    first: Counter[Any] = Counter()
    for _ in range(12 * partitions):
        for queue in queues:
            order: list[Any] = claimer._in_turn(queue)
            assert sorted(order) == [(queue, number) for number in range(partitions)]
            first[order[0]] += 1
    assert first == {(queue, number): 12 for queue in queues for number in range(partitions)}
