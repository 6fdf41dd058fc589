"""A short chaos run on each store, with servers of the run's own. scripts/chaos makes the long ones."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.chaos import run
from tests.faults.report import Plan

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own, which only root may enter: some servers refuse to be root."""
    folder = Path(tempfile.mkdtemp(prefix="nimbusq-chaos-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("driver", "jobs", "kills"),
    [
        ("sqlite", 4_000, 25),
        ("redis", 4_000, 25),
        ("postgres", 4_000, 25),
        pytest.param("kafka", 1_000, 8, marks=pytest.mark.kafka),
        pytest.param("sqs", 1_000, 8, marks=pytest.mark.sqs),
    ],
)
async def test_a_minute_of_chaos(driver: str, jobs: int, kills: int, folder: Path) -> None:
    report = await run(Plan(driver=driver, jobs=jobs, kills=kills, seed=7), folder)
    print(report.text())  # noqa: T201  # the figures are the point
    assert report.violations == []
    assert report.void == []
