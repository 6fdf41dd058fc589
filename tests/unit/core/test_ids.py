"""Ids: UUIDs of version 7, alone or many at a time."""

from __future__ import annotations

import time
import uuid

from nimbusq.ids import new_id, new_ids


def test_many_are_as_good_as_one() -> None:
    before = time.time_ns() // 1_000_000
    ids = [*new_ids(3000), new_id()]
    after = time.time_ns() // 1_000_000
    assert len(set(ids)) == 3001
    for one in ids:
        read = uuid.UUID(one)
        assert (str(read), read.version, read.variant) == (one, 7, uuid.RFC_4122)
        assert before <= read.int >> 80 <= after


def test_every_bit_that_is_not_fixed_is_random() -> None:
    fixed = 0xFFFFFFFFFFFF_F000_C000_000000000000
    numbers = [uuid.UUID(one).int for one in new_ids(200)]
    ones, zeros = 0, 0
    for number in numbers:
        ones |= number
        zeros |= ~number
    assert ones & zeros | fixed == 2**128 - 1


def test_none_is_none() -> None:
    assert new_ids(0) == []
