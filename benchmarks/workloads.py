"""The workloads: each measures one peer once, from a fresh place, and answers its figures by name."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from benchmarks.bench import Bench, Drained, Workers
from benchmarks.catalogue import FEATURES
from benchmarks.peer import NAP

Figures: TypeAlias = dict[str, float]

BACKLOG: Final = 200_000
BESIDE: Final = 100_000
SHALLOW: Final = 1000
BURSTS: Final = 10
NAPS: Final = 2000
NAPPERS: Final = 100
SPACING: Final = 0.01
PACED: Final = 300
SETTLING: Final = 0.2
"""Seconds for the last acknowledgements: a worker that is held inside its transaction keeps an SQLite file locked."""


def enqueue(bench: Bench) -> Figures:
    """One job after the other, 64 tasks at once, and in bulk."""
    jobs = min(bench.entry.jobs, 5000)
    figures: Figures = {}
    for mode, name, n in (
        ("one", "enqueue", jobs),
        ("at once", "enqueue at once", jobs),
        ("bulk", "bulk", 20_000),
    ):
        bench.fresh()
        sent = bench.send(n, mode=mode)
        if sent:
            figures[f"{name} /s"] = sent["rate"]
            figures[f"{name} us"] = sent["cpu"]
    if "enqueue at once /s" in figures:
        figures["at once ÷ one"] = figures["enqueue at once /s"] / figures["enqueue /s"]
    return figures


def drain(bench: Bench) -> Figures:
    """One worker process on no-op jobs, at its best concurrency and at 10."""
    figures: Figures = {}
    for suffix, concurrency in (("", bench.entry.best), (" at 10", bench.entry.low)):
        drained = _drain(bench, bench.entry.jobs, concurrency)
        figures |= {f"drain{suffix} /s": drained.rate, f"drain{suffix} us": drained.cpu}
    return figures


def two(bench: Bench) -> Figures:
    """Two worker processes together."""
    return {"2 processes /s": _drain(bench, 2 * bench.entry.jobs, bench.entry.best, processes=2).rate}


def nap(bench: Bench) -> Figures:
    """2,000 jobs that sleep 50 ms each, at concurrency 100: one second, ideally."""
    if bench.entry.serial:
        return {}
    bench.fresh()
    bench.send(NAPS, kind="nap")
    drained = bench.drain(range(NAPS), NAPPERS)
    return {"naps ÷ ideal": (drained.seconds + NAP) / (NAPS / NAPPERS * NAP)}


def latency(bench: Bench) -> Figures:
    """From send to start on an idle worker in another process; on SQLite also in the same process."""
    numbers = range(PACED)
    bench.fresh()
    with bench.working(bench.entry.best) as workers:
        _warm(bench, workers)
        bench.pace(PACED, spacing=SPACING)
        bench.await_runs(numbers, workers)
    bench.check(numbers)
    figures = _percentiles(bench.latencies(numbers), "")
    if bench.entry.driver == "sqlite":
        bench.fresh()
        with bench.working(bench.entry.best, alone=(PACED, SPACING)) as workers:
            bench.await_runs(numbers, workers)
        bench.check(numbers)
        figures |= _percentiles(bench.latencies(numbers), " same process")
    return figures


def depth(bench: Bench) -> Figures:
    """The rate with 200,000 jobs waiting, over that with never more than 1,000."""
    shallow = _bursts(bench)
    bench.fresh()
    bench.send(BACKLOG)
    numbers = range(BACKLOG)
    measured = min(bench.entry.jobs, BACKLOG // 4) + SHALLOW
    with bench.working(bench.entry.best) as workers:
        bench.await_runs(numbers, workers, at_least=measured)
    starts = bench.starts(numbers)[SHALLOW:measured]
    deep = (len(starts) - 1) / (starts[-1] - starts[0])
    return {"1,000 waiting /s": shallow, "200,000 waiting /s": deep, "200,000 ÷ 1,000": deep / shallow}


def delayed(bench: Bench) -> Figures:
    """The drain with 100,000 delayed jobs beside it, over the one without."""
    jobs = bench.entry.jobs
    without = _drain(bench, jobs, bench.entry.best)
    bench.fresh()
    if not bench.send(BESIDE, first=jobs, mode="delayed"):
        return {}
    bench.send(jobs)
    beside = bench.drain(range(jobs), bench.entry.best)
    return {"beside 100,000 delayed /s": beside.rate, "beside ÷ without": beside.rate / without.rate}


def memory(bench: Bench) -> Figures:
    """What a worker holds after 5,000 jobs and after 50,000."""
    few, many = range(5000), range(50_000)
    bench.fresh()
    bench.send(len(few))
    with bench.working(bench.entry.best) as workers:
        bench.await_runs(few, workers)
        before = workers.rss()
        for first in range(len(few), len(many), len(few)):
            bench.send(len(few), first=first)
            bench.await_runs(many[: first + len(few)], workers)
        after = workers.rss()
    bench.check(many)
    return {"RSS MB": after, "RSS 50,000 ÷ 5,000": after / before}


def features(bench: Bench) -> Figures:
    """nimbusq only: the drain with each feature in use, over the plain one."""
    if not bench.entry.ours:
        return {}
    jobs, best = bench.entry.jobs, bench.entry.best
    before = _drain(bench, jobs, best).rate
    rates = {name: _drain(bench.variant(target), jobs, best).rate for name, target in FEATURES.items()}
    plain = statistics.mean([before, _drain(bench, jobs, best).rate])
    return {f"{name} ÷ plain": rate / plain for name, rate in rates.items()}


# --- parts of them ---------------------------------------------------------------------------------------------


def _drain(bench: Bench, jobs: int, concurrency: int, *, processes: int = 1) -> Drained:
    bench.fresh()
    bench.send(jobs)
    return bench.drain(range(jobs), concurrency, processes=processes)


def _bursts(bench: Bench) -> float:
    """The median rate of bursts of 1,000 jobs, each sent while the worker is held. The first one warms it.

    It is the slope of the starts: between the first and the last one the time of the first claim is missing, which of
    a few claims is a large part.
    """
    bench.fresh()
    rates = []
    with bench.working(bench.entry.best) as workers:
        for burst in range(BURSTS + 1):
            numbers = range(burst * SHALLOW, (burst + 1) * SHALLOW)
            time.sleep(SETTLING)
            with workers.held():
                bench.send(SHALLOW, first=numbers.start)
            bench.await_runs(numbers, workers)
            rates.append(statistics.linear_regression(bench.starts(numbers), range(SHALLOW)).slope)
    bench.check(range((BURSTS + 1) * SHALLOW))
    return statistics.median(rates[1:])


def _warm(bench: Bench, workers: Workers) -> None:
    """One job through, then a while of nothing: the worker is idle, its caches are warm."""
    after = range(PACED, PACED + 1)
    bench.send(1, first=after.start, mode="one")
    bench.await_runs(after, workers)
    time.sleep(1.0)


def _percentiles(sorted_times: list[float], suffix: str) -> Figures:
    def at(share: float) -> float:
        return sorted_times[min(len(sorted_times) - 1, int(len(sorted_times) * share))]

    return {f"p50{suffix} ms": at(0.50), f"p95{suffix} ms": at(0.95), f"p99{suffix} ms": at(0.99)}


WORKLOADS: Final[dict[str, Callable[[Bench], Figures]]] = {
    "enqueue": enqueue,
    "drain": drain,
    "two": two,
    "nap": nap,
    "latency": latency,
    "depth": depth,
    "delayed": delayed,
    "memory": memory,
    "features": features,
}
