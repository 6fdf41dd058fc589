"""The garbage collector's settings, in a process of their own since they are the process's."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from nimbusq.worker.collector import THRESHOLDS, tune_collector
assert gc.get_threshold() != THRESHOLDS
tune_collector()
assert gc.get_threshold() == THRESHOLDS
assert gc.isenabled()
assert gc.get_freeze_count() > 1000
"""


def test_what_was_imported_is_frozen_and_the_rest_is_still_collected() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=30)
