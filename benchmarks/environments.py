"""Each peer's own virtual environment, made when it is first needed and again when its requirements change."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from benchmarks.catalogue import Entry

EVERYWHERE: Final = ("uvloop==0.23.0",)
"""Every process runs on uvloop where it has an event loop."""


def cache() -> Path:
    """Where environments and results are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("NIMBUSQ_BENCHMARKS_DIR") or Path(home) / "nimbusq-benchmarks")


def python_of(entry: Entry) -> Path:
    """The interpreter that runs this peer."""
    return (
        Path(sys.executable) if entry.environment is None else _environment(entry.environment, entry.requires)
    )


def _environment(name: str, requires: tuple[str, ...]) -> Path:
    folder = cache() / "environments" / name
    python, complete = folder / "bin" / "python", folder / "complete"
    wanted = "\n".join([sys.version, *EVERYWHERE, *requires])
    if not complete.exists() or complete.read_text() != wanted:
        print(f"installing {', '.join(requires)} into {folder}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *EVERYWHERE, *requires], check=True)
        complete.write_text(wanted)
    return python
