"""The example that scripts/demo runs: what it reports, with and without a killed worker."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "index_source.py"

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred files of the standard library, one that is not Python and one that is not text."""
    folder = tmp_path_factory.mktemp("source")
    library = Path(sysconfig.get_path("stdlib"))
    for package in ("asyncio", "email", "http", "json", "logging", "unittest", "xml", "concurrent", "ctypes"):
        shutil.copytree(library / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "broken.py").write_text("def broken(:\n")
    (folder / "binary.py").write_bytes(b"\x00\xff")
    return folder


def index(source: Path, output: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """What the program printed, and its report."""
    command = [sys.executable, EXAMPLE, source, "--output", output, *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, json.loads((output / "report.json").read_text())


def test_the_report_counts_what_the_files_have_and_names_those_that_do_not_parse(
    source: Path, tmp_path: Path
) -> None:
    printed, report = index(source, tmp_path)
    files = sorted(source.rglob("*.py"))
    trees = [ast.parse(file.read_bytes()) for file in files if file.parent != source]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    assert report["files"] == len(files)
    assert report["indexed"] == len(trees) == len(files) - 2
    assert report["classes"] == sum(isinstance(node, ast.ClassDef) for node in nodes)
    assert report["functions"] == sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes
    )
    assert len(report["failed"]) == 2
    for name in ("broken.py", "binary.py"):
        assert any(name in error for error in report["failed"])
        assert name in printed


def test_a_killed_worker_changes_nothing_in_the_report(source: Path, tmp_path: Path) -> None:
    _, undisturbed = index(source, tmp_path / "undisturbed")
    printed, report = index(source, tmp_path / "killed", "--kill")
    assert re.search(r"killed worker \d+ after \d+ files", printed)
    assert report == undisturbed
