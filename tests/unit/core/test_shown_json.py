"""What ``--json`` prints of batches and failed jobs: scripts read it, so names may be added and none may change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nimbusq.batch import ABANDONED_AFTER, stage_of
from nimbusq.cli.batches import batch_row
from nimbusq.cli.output import to_plain
from nimbusq.driver import BatchState, FailedRecord
from nimbusq.envelope import Envelope

GOLDEN = Path(__file__).parent / "golden"

ENVELOPE = Envelope(id="0198a", name="SendEmail", queue="mail", body=b'{"user_id":12}')
RUNNING = BatchState(
    id="b1",
    name="import",
    total=21,
    pending=3,
    failed=1,
    errors=("SendEmail: ValueError: no \N{SNOWMAN}",),
    sealed=True,
    created_at=1_800_000_000.25,
    updated_at=1_800_000_060.5,
    catch=ENVELOPE,
)
RECORD = FailedRecord(
    id="0198a",
    queue="mail",
    name="SendEmail",
    wire=ENVELOPE.to_wire(),
    error="ValueError: no \N{SNOWMAN}",
    kind="ValueError",
    traceback="Traceback (most recent call last):\n",
    fingerprint="0123456789abcdef",
    attempts=4,
    max_attempts=4,
    failed_at=1_800_000_060.5,
)
SHOWN: dict[str, Any] = {
    "batch": batch_row(RUNNING, RUNNING.updated_at),
    "failed_record": to_plain(RECORD),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_names_do_not_change(name: str) -> None:
    assert SHOWN[name] == json.loads((GOLDEN / f"{name}.json").read_text())


def test_a_batch_is_incomplete_a_day_after_its_last_progress() -> None:
    now = RUNNING.updated_at
    left = BatchState(id="b", name="", total=700, pending=0, failed=0, updated_at=now)
    ended = BatchState(id="b", name="", total=1, pending=0, failed=0, sealed=True, finished_at=now)
    assert ABANDONED_AFTER == 24 * 3600
    assert stage_of(left, now + ABANDONED_AFTER - 1) == "open"
    assert stage_of(left, now + ABANDONED_AFTER) == "incomplete"
    assert stage_of(RUNNING, now + ABANDONED_AFTER) == "running"
    assert stage_of(ended, now + ABANDONED_AFTER) == "finished"
