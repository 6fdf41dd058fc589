"""A stage on one SQLite file, for the tests with real worker processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.stage import Stage, staged

TRIALS = Path(__file__).parent / "programs" / "trials.py"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """An empty queue in a file of its own; every process that the test starts ends with it."""
    stage = Stage(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, TRIALS)
    async with staged(stage):
        yield stage
