"""The rule of tests/conftest.py: without its server a test is skipped, and in CI it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

TESTS = """
import pytest

def test_by_fixture(redis_url):
    assert redis_url == "redis://here"

@pytest.mark.redis
def test_by_marker():
    pass

def test_without():
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    redis\n    postgres\n    mysql\n    kafka\n    sqs\n"
    )
    return tmp_path


def run(folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """pytest's exit code and its last line, without the time."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("CI", "REDIS_URL")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    result = subprocess.run(
        command, cwd=folder, env=inherited | variables, capture_output=True, text=True, check=False
    )
    return result.returncode, result.stdout.splitlines()[-1].split(" in ")[0]


def test_on_a_developers_machine_it_is_skipped(folder: Path) -> None:
    assert run(folder) == (0, "1 passed, 2 skipped")


def test_in_ci_it_fails(folder: Path) -> None:
    code, line = run(folder, CI="true")
    assert code == 1
    # The fixture's test errs before its body, the marked one in its setup.
    assert line == "1 passed, 2 errors"


def test_with_the_server_it_runs(folder: Path) -> None:
    assert run(folder, CI="true", REDIS_URL="redis://here") == (0, "3 passed")


def test_asking_for_the_fixture_marks(folder: Path) -> None:
    assert run(folder, "-m", "redis", REDIS_URL="redis://here") == (0, "2 passed, 1 deselected")
