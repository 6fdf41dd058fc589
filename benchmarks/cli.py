"""benchmarks/run: measure nimbusq beside its peers, print and keep the tables."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.bench import ROOT, Bench, Miscounted
from benchmarks.catalogue import DRIVERS, PEERS, Driver, choose
from benchmarks.environments import cache, python_of
from benchmarks.report import markdown, write_into
from benchmarks.results import Results
from benchmarks.servers import Servers
from benchmarks.tally import Tally
from benchmarks.workloads import WORKLOADS

PAGE: Final = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    given = _arguments()
    failed = False
    for driver in given.driver:
        results = _measure(given, driver)
        command = f"benchmarks/run {' '.join(sys.argv[1:])}".strip()
        text = markdown(results, command)
        print(f"\n## {driver}\n\n{text}")
        folder = cache() / "results"
        folder.mkdir(parents=True, exist_ok=True)
        results.save(folder / f"{driver}.json")
        (folder / f"{driver}.md").write_text(text)
        if given.docs:
            write_into(PAGE, driver, text)
        failed = failed or any(trouble.startswith("nimbusq") for trouble in results.troubles)
    return int(failed)


def _measure(given: argparse.Namespace, driver: Driver) -> Results:
    """Every round runs each workload on all peers, one right after the other, in an order of its own."""
    entries = choose(driver, given.peers)
    for entry in entries:
        python_of(entry)
    with (
        tempfile.TemporaryDirectory(prefix="nimbusq-bench-") as folder,
        Servers(Path(folder), appendfsync=given.appendfsync) as servers,
    ):
        servers.start([driver])
        tally = Tally.create(Path(folder) / "tally")
        benches = [Bench(entry, servers, tally, Path(folder)) for entry in entries]
        results = Results(driver, entries)
        for number in range(given.rounds):
            for workload in given.workloads:
                for bench in random.Random(f"{number} {workload}").sample(benches, len(benches)):
                    _run(bench, workload, number, results)
    return results


def _run(bench: Bench, workload: str, number: int, results: Results) -> None:
    name, began = bench.entry.name, time.monotonic()
    try:
        figures = WORKLOADS[workload](bench)
    except Miscounted as trouble:
        results.troubles.append(
            f"{name}, {workload}, round {number + 1}: {str(trouble).strip().splitlines()[-1]}"
        )
        figures = {}
        print(f"{name}: {trouble}", file=sys.stderr, flush=True)
    results.add(name, number, figures)
    shown = ", ".join(f"{figure} {value:,.4g}" for figure, value in figures.items())
    print(
        f"round {number + 1} {workload} {name} ({time.monotonic() - began:.0f} s): {shown}",
        file=sys.stderr,
        flush=True,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run", description=__doc__)
    parser.add_argument(
        "--driver", type=_drivers, default=["redis"], help="one or more of " + ", ".join(DRIVERS)
    )
    parser.add_argument("--workloads", type=_workloads, default=list(WORKLOADS), help=", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--peers", type=_peers, default=[], help="names, or all; default: the best few of the driver"
    )
    parser.add_argument(
        "--appendfsync", choices=["always", "everysec", "no"], help="let Redis keep a log, in this way"
    )
    parser.add_argument("--docs", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _drivers(text: str) -> Sequence[Driver]:
    return [driver for driver in DRIVERS if driver in _known(text, DRIVERS)]


def _workloads(text: str) -> Sequence[str]:
    return [name for name in WORKLOADS if name in _known(text, list(WORKLOADS))]


def _peers(text: str) -> Sequence[str]:
    return _known(text, ["all", *(entry.name for entry in PEERS)])


def _known(text: str, known: Sequence[str]) -> Sequence[str]:
    names = _names(text)
    if unknown := set(names) - set(known):
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        )
    return names


if __name__ == "__main__":
    sys.exit(main())
