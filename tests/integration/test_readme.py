"""The README's program, run as the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (found,) = [text for text in blocks if containing in text]
    return str(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(block("python", "# jobs.py"))
    return tmp_path


def env(folder: Path, **more: str) -> dict[str, str]:
    lines = block("sh", "QUEUE_DRIVER").splitlines()
    (url,) = [line.partition("QUEUE_DRIVER=")[2] for line in lines if "QUEUE_DRIVER=" in line]
    return {**os.environ, "QUEUE_DRIVER": url, "PWD": str(folder), **more}


def test_the_fifteen_lines_with_a_worker(folder: Path) -> None:
    words = next(line for line in block("sh", "QUEUE_DRIVER").splitlines() if line.startswith("nimbusq work"))
    command = [sys.executable, "-m", "nimbusq", *words.partition("&")[0].split()[1:]]
    worker = subprocess.Popen(
        command, cwd=folder, env=env(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        begun = time.monotonic()
        sent = subprocess.run(
            [sys.executable, "jobs.py"],
            cwd=folder,
            env=env(folder),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert sent.stdout == "5\n"
        assert worker.stdout is not None
        assert any(line == "to 12: Welcome\n" for line in worker.stdout)
        assert time.monotonic() - begun >= 2
    finally:
        worker.terminate()
        worker.communicate(timeout=30)


def test_without_any_setting_the_jobs_run_in_the_sender(folder: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "QUEUE_DRIVER"}
    sent = subprocess.run(
        [sys.executable, "jobs.py"],
        cwd=folder,
        env=plain,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert sent.stdout == "to 12: Welcome\n5\n"


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert missing == []
