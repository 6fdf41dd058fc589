"""Which settlements may be marked when some of their records were not written."""

from __future__ import annotations

from typing import Any, cast

from nimbusq_kafka.records import Outgoing
from nimbusq_kafka.settling import _written

ERROR = ConnectionError("gone")
RECORD = Outgoing(topic="t", value=b"", headers=[])


def written(records: dict[str, int], failures: list[BaseException | None]) -> list[str]:
    """The names of those that may be marked; each has so many records."""
    pairs = cast("Any", [(name, [RECORD] * count) for name, count in records.items()])
    return cast("list[str]", list(_written(pairs, failures)))


def test_one_whose_records_are_not_all_written_is_not_marked() -> None:
    assert written({"none": 0, "half": 2, "all": 2}, [None, ERROR, None, None]) == ["none", "all"]


def test_a_failure_counts_for_its_own_settlement_only() -> None:
    assert written({"first": 3, "second": 1, "third": 1}, [ERROR, None, None, None, ERROR]) == ["second"]


def test_without_records_all_are_marked() -> None:
    assert written({"a": 0, "b": 0}, []) == ["a", "b"]
