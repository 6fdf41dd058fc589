"""One peer under measurement: its processes, what they are told, and the check that every job ran exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.catalogue import Entry
from benchmarks.environments import python_of
from benchmarks.peer import Place
from benchmarks.servers import Servers
from benchmarks.tally import VARIABLE, Tally

ROOT: Final = Path(__file__).parent.parent
PATIENCE: Final = 120.0
"""Seconds that one measurement may take."""
STANDSTILL: Final = 30.0
"""Seconds without any new run after which a measurement is given up."""
GLANCE: Final = 0.005
"""Seconds between two looks at the tally."""


class Miscounted(Exception):
    """Jobs were lost or ran twice: there is no figure to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """rate: jobs a second from the first start to the last. cpu: microseconds of the workers for each job, from
    the first start until all had run. seconds: from the first start to the last."""

    rate: float
    cpu: float
    seconds: float


class Workers:
    """Worker processes, each at the head of a group of its own, with all that they started."""

    def __init__(self, command: list[str], processes: int, log: Path, environment: dict[str, str]) -> None:
        with log.open("ab") as output:
            self._processes = [
                psutil.Popen(
                    command, stdout=output, stderr=output, env=environment, cwd=ROOT, start_new_session=True
                )
                for _ in range(processes)
            ]
        self._log = log

    def cpu(self) -> float:
        """CPU seconds so far."""
        times = [process.cpu_times() for process in self._all()]
        return sum(each.user + each.system + each.children_user + each.children_system for each in times)

    def rss(self) -> float:
        """MB of memory."""
        return float(sum(process.memory_info().rss for process in self._all()) / 2**20)

    def check(self) -> None:
        """Raises Miscounted when one has ended."""
        if any(process.poll() is not None for process in self._processes):
            raise Miscounted(
                f"a worker ended by itself; the end of {self._log}:\n{self._log.read_text()[-1500:]}"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """They stand still for the duration of the block."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, number)

    def _all(self) -> Iterator[psutil.Process]:
        for process in self._processes:
            yield process
            yield from process.children(recursive=True)


class Bench:
    """Measures one peer. Every measurement begins with `fresh`."""

    def __init__(
        self, entry: Entry, servers: Servers, tally: Tally, folder: Path, *, target: str | None = None
    ) -> None:
        self.entry = entry
        self._target = target or entry.target
        self._servers = servers
        self._tally = tally
        self._log = folder / f"{entry.driver}-{entry.name}.log"
        path = f"{ROOT}{os.pathsep}{ROOT / 'drivers'}"  # of this very checkout, whatever is installed
        self._environment = os.environ | {VARIABLE: str(folder / "tally"), "PYTHONPATH": path}
        self._place: Place | None = None

    def variant(self, target: str) -> Bench:
        """The same under another target of `benchmarks.peers`."""
        return Bench(self.entry, self._servers, self._tally, self._log.parent, target=target)

    def fresh(self) -> None:
        """Go to an empty place, and forget all runs."""
        self._tally.clear()
        self._place = self._servers.fresh(self.entry.driver)
        self._call("install")

    def send(
        self, jobs: int, *, first: int = 0, mode: str = "quickest", kind: str = "noop"
    ) -> dict[str, float]:
        """Send jobs; "rate" and "cpu", or nothing where the peer does not offer that mode."""
        output = self._call("send", f"--jobs={jobs}", f"--first={first}", f"--mode={mode}", f"--kind={kind}")
        answer: dict[str, float] = json.loads(output.splitlines()[-1])
        return answer

    def pace(self, jobs: int, *, first: int = 0, spacing: float) -> None:
        """Send no-op jobs one every `spacing` seconds."""
        self._call("paced", f"--jobs={jobs}", f"--first={first}", f"--spacing={spacing}")

    @contextmanager
    def working(
        self, concurrency: int, *, processes: int = 1, alone: tuple[int, float] | None = None
    ) -> Iterator[Workers]:
        """Workers for the duration of the block. alone: one that sends so many jobs itself, so many seconds apart."""
        command = self._command("work", f"--concurrency={concurrency}")
        if alone is not None:
            jobs, spacing = alone
            command = self._command(
                "alone", f"--concurrency={concurrency}", f"--jobs={jobs}", f"--spacing={spacing}"
            )
        with ExitStack() as stack:
            workers = Workers(command, processes, self._log, self._environment)
            stack.callback(workers.kill)
            yield workers

    def drain(self, numbers: range, concurrency: int, *, processes: int = 1) -> Drained:
        """Start workers on what was sent and wait until all of it has run, each job once."""
        with self.working(concurrency, processes=processes) as workers:
            self.await_runs(numbers, workers, at_least=1)
            cpu = workers.cpu()
            self.await_runs(numbers, workers)
            cpu = workers.cpu() - cpu
        self.check(numbers)
        starts = self.starts(numbers)
        seconds = starts[-1] - starts[0]
        return Drained(rate=(len(numbers) - 1) / seconds, cpu=cpu / len(numbers) * 1e6, seconds=seconds)

    def await_runs(self, numbers: range, workers: Workers, *, at_least: int | None = None) -> None:
        """Wait until all of them, or `at_least` so many, have run. Raises Miscounted when that does not happen."""
        allowed = 0 if at_least is None else len(numbers) - at_least
        began = moved = time.monotonic()
        before = len(numbers)
        while (missing := self._tally.missing(numbers)) > allowed:
            workers.check()
            now = time.monotonic()
            if missing != before:
                before, moved = missing, now
            if now - began > PATIENCE or now - moved > STANDSTILL:
                raise Miscounted(f"{missing} of {len(numbers)} jobs have not run after {now - began:.0f} s")
            time.sleep(GLANCE)

    def check(self, numbers: range) -> None:
        """Raises Miscounted unless each of them ran exactly once."""
        missing, repeated = self._tally.missing(numbers), self._tally.repeated(numbers)
        if missing or repeated:
            raise Miscounted(f"of {len(numbers)} jobs {missing} have not run, {repeated} more than once")

    def starts(self, numbers: range) -> list[float]:
        """When they were started, in order of time."""
        return self._tally.starts(numbers)

    def latencies(self, numbers: range) -> list[float]:
        """Milliseconds from send to start, sorted."""
        return sorted((self._tally.started[i] - self._tally.sent[i]) * 1000 for i in numbers)

    def _call(self, action: str, *options: str) -> str:
        command = self._command(action, *options)
        try:
            done = subprocess.run(
                command,
                check=False,
                env=self._environment,
                cwd=ROOT,
                text=True,
                capture_output=True,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired:
            raise Miscounted(f"{action} took more than {PATIENCE:.0f} s") from None
        if done.returncode:
            raise Miscounted(f"{action} failed: {done.stderr[-1500:]}")
        return done.stdout

    def _command(self, action: str, *options: str) -> list[str]:
        place = self._place
        assert place is not None, "fresh() comes first"
        where = [f"--driver={place.driver}", f"--url={place.url}", f"--name={place.name}"]
        return [str(python_of(self.entry)), "-m", "benchmarks.side", self._target, action, *where, *options]
