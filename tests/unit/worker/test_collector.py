"""The garbage collector: its settings, in a process of their own since they are the process's, and its work."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Sequence

from nimbusq import Job, dispatch_many
from nimbusq.driver import Settlement
from nimbusq.worker.run import Run
from tests.unit.worker.bench import Bench, until

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


async def test_a_run_leaves_nothing_for_the_collector(bench: Bench) -> None:
    """A circle of references in each run once cost a fifth of a no-op job's CPU."""

    class Nothing(Job):
        async def handle(self) -> None:
            return None

    ran = 0

    async def settled(settlements: Sequence[Settlement], _answer: object) -> None:
        nonlocal ran
        ran += len(settlements)

    bench.adapter.after["settle"] = settled
    gc.collect()
    gc.disable()
    try:
        await dispatch_many([Nothing() for _ in range(50)])
        async with bench.working(concurrency=10):
            await until(lambda: ran == 50)
        bench.adapter.settlements.clear()  # the recorder keeps them
        assert [one for one in gc.get_objects() if isinstance(one, Run)] == []
    finally:
        gc.enable()
