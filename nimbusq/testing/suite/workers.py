"""Workers: who reports, who left, and what all of them did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nimbusq.driver import WorkerReport, Workers
from nimbusq.testing.suite.hands import Hands
from nimbusq.testing.suite.needs import needs


def store_of(hands: Hands) -> Workers:
    workers = hands.adapter.stores.workers
    assert workers is not None
    return workers


def report(worker_id: str, **fields: Any) -> WorkerReport:
    defaults: dict[str, Any] = {
        "host": "h1",
        "pid": 42,
        "queues": ("mail", "default"),
        "concurrency": 10,
        "started_at": 1_700_000_000.5,
        "version": "1.2.3",
        "running": {"j1": {"queue": "mail", "attempt": 2, "progress": 0.5}},
        "counters": {"mail": {"processed": 3, "failed": 1}},
        "names": ("SendEmail",),
        "loop_lag": 0.25,
    }
    return WorkerReport(id=worker_id, **{**defaults, **fields})


class WorkerSuite:
    @needs("workers")
    async def test_a_report_is_kept_with_the_stores_time(self, hands: Hands) -> None:
        sent = report("w1")
        await store_of(hands).report(sent)
        (seen,) = await store_of(await hands.other()).list()
        assert replace(seen, seen_at=0.0) == sent
        assert seen.seen_at > 1_000_000_000

    @needs("workers")
    async def test_the_last_report_counts(self, hands: Hands) -> None:
        await store_of(hands).report(report("w1"))
        await store_of(hands).report(report("w1", counters={"mail": {"processed": 5}}))
        (seen,) = await store_of(hands).list()
        assert dict(seen.counters) == {"mail": {"processed": 5}}

    @needs("workers")
    async def test_silent_workers_are_not_listed(self, hands: Hands) -> None:
        await store_of(hands).report(report("old"))
        await hands.env.advance(40)
        await store_of(hands).report(report("new"))
        assert [seen.id for seen in await store_of(hands).list(max_age=30)] == ["new"]
        both = await store_of(hands).list(max_age=3600)
        assert sorted(seen.id for seen in both) == ["new", "old"]

    @needs("workers")
    async def test_a_worker_that_left_is_gone_at_once(self, hands: Hands) -> None:
        await store_of(hands).report(report("w1"))
        await store_of(hands).leave("w1")
        await store_of(hands).leave("never-seen")
        assert list(await store_of(hands).list()) == []

    @needs("workers")
    async def test_totals_keep_what_gone_workers_did(self, hands: Hands) -> None:
        workers = store_of(hands)
        await workers.report(report("w1", counters={"mail": {"processed": 3, "failed": 1}}))
        await workers.report(report("w2", counters={"mail": {"processed": 4}, "default": {"processed": 1}}))
        await workers.report(report("w1", counters={"mail": {"processed": 5, "failed": 1}}))
        expected = {"mail": {"processed": 9, "failed": 1}, "default": {"processed": 1}}
        assert plain(await workers.totals()) == expected
        await workers.leave("w1")
        assert plain(await workers.totals()) == expected
        await workers.report(report("w3", counters={"mail": {"processed": 1}}))
        assert plain(await workers.totals())["mail"]["processed"] == 10


def plain(totals: Any) -> dict[str, dict[str, int]]:
    return {queue: dict(counters) for queue, counters in totals.items()}
