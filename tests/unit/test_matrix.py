"""The driver table is made of the capability records."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from nimbusq.matrix import COLUMNS, Row, markdown, row, rows
from nimbusq_sqs import SqsAdapter
from nimbusq_sync import SyncAdapter

DOCUMENT = Path(__file__).parents[2] / "docs" / "drivers" / "README.md"


def test_a_row_says_what_the_record_says() -> None:
    assert row(SqsAdapter()) == Row(
        driver="sqs",
        durable="yes",
        lease="timed",
        fenced="no",
        coordination="via store",
        priorities="via store",
        transactions="via store",
        cancel="no",
        delays="any, rough above 900 s",
        longest_run="12 h",
        largest_job="1,048,320 B",
    )
    sync = row(SyncAdapter())
    assert (sync.durable, sync.coordination, sync.priorities, sync.cancel) == ("no", "yes", "yes", "yes")
    assert sync.transactions == "no", "there is no store beside it"
    assert (sync.delays, sync.longest_run, sync.largest_job) == ("any", "any", "any")


def test_a_limit_of_delays_is_named() -> None:
    adapter = SyncAdapter()
    adapter.capabilities = replace(adapter.capabilities, max_delay=60.0)
    assert row(adapter).delays == "up to 60 s, longer ones via store"


def test_every_driver_has_one_row_and_every_field_a_heading() -> None:
    table = rows()
    names = [one.driver for one in table]
    assert names == ["sync", "redis", "database", "sqs", "kafka"]
    assert list(asdict(table[0])) == list(COLUMNS)


def test_the_documentation_has_the_table() -> None:
    assert markdown() in DOCUMENT.read_text()
