"""The failed store: kept until forgotten, and moved back in one step."""

from __future__ import annotations

import asyncio

from nimbusq.driver import FailedRecord, FailedStore, Pushed
from nimbusq.envelope import Unique
from nimbusq.testing.suite.hands import Hands, failed_record, new_id
from nimbusq.testing.suite.needs import needs


def store_of(hands: Hands) -> FailedStore:
    failed = hands.adapter.stores.failed
    assert failed is not None
    return failed


async def fail_one(hands: Hands, **fields: object) -> str:
    """Push a job and fail it for good."""
    sent = await hands.push(**fields)
    await hands.fail(await hands.take())
    return sent.id


def record(n: int, **fields: object) -> FailedRecord:
    defaults: dict[str, object] = {"queue": "a", "name": "Probe", "wire": b"w", "error": f"boom {n}"}
    return FailedRecord(**{"id": new_id(), "kind": "E", **defaults, **fields})  # type: ignore[arg-type]


class FailedSuite:
    @needs("failed")
    async def test_a_failed_job_is_kept_as_it_was(self, hands: Hands) -> None:
        sent = await hands.push(body=b"\x00\xff", max_attempts=3)
        claim = await hands.take()
        await hands.fail(claim, "boom: 42")
        kept = await store_of(hands).get(sent.id)
        assert kept
        assert (kept.id, kept.queue, kept.name, kept.wire) == (sent.id, "probe", "Probe", sent.to_wire())
        assert (kept.error, kept.kind, kept.traceback) == ("boom: 42", "ValueError", "line 1")
        assert (kept.fingerprint, kept.attempts, kept.max_attempts) == ("Probe/ValueError", 1, 1)
        assert kept.failed_at > 1_000_000_000
        assert await hands.is_idle()

    @needs("failed")
    async def test_unknown_records_are_none(self, hands: Hands) -> None:
        failed, unknown = store_of(hands), new_id()
        assert await failed.get(unknown) is None
        assert await failed.forget(unknown) is False
        assert await failed.retry(unknown) is None

    @needs("failed")
    async def test_a_record_is_replaced_by_its_id(self, hands: Hands) -> None:
        first = record(1)
        await store_of(hands).push(first)
        await store_of(hands).push(record(2, id=first.id))
        kept = await store_of(hands).get(first.id)
        assert kept
        assert (kept.error, await store_of(hands).count()) == ("boom 2", 1)

    @needs("failed")
    async def test_pages_come_newest_first(self, hands: Hands) -> None:
        records = [record(n, queue="a" if n % 2 else "b") for n in range(5)]
        for one in records:
            await store_of(hands).push(one)
            await hands.pass_ticks(0.01)
        first, cursor = await store_of(hands).page(limit=3)
        assert [one.error for one in first] == ["boom 4", "boom 3", "boom 2"]
        second, end = await store_of(hands).page(cursor=cursor, limit=3)
        assert [one.error for one in second] == ["boom 1", "boom 0"]
        assert end == ""
        odd, _ = await store_of(hands).page(queue="a")
        assert [one.error for one in odd] == ["boom 3", "boom 1"]

    @needs("failed")
    async def test_counts_and_forgetting(self, hands: Hands) -> None:
        records = [record(n, queue="a" if n < 2 else "b") for n in range(5)]
        for one in records:
            await store_of(hands).push(one)
        assert await store_of(hands).count() == 5
        assert await store_of(hands).count(queue="a") == 2
        assert await store_of(hands).forget(records[0].id) is True
        assert await store_of(hands).forget_all(queue="a") == 1
        assert await store_of(hands).forget_all() == 3
        assert await store_of(hands).count() == 0

    @needs("failed")
    async def test_forgetting_what_is_old(self, hands: Hands) -> None:
        await store_of(hands).push(record(1))
        await hands.pass_ticks(3)
        await store_of(hands).push(record(2))
        assert await store_of(hands).forget_all(older_than=2 * hands.tick) == 1
        (left,) = (await store_of(hands).page())[0]
        assert left.error == "boom 2"

    @needs("failed")
    async def test_failures_of_one_cause_are_a_group(self, hands: Hands) -> None:
        for n, fingerprint in enumerate(["x", "y", "x"]):
            await store_of(hands).push(record(n, fingerprint=fingerprint))
            await hands.pass_ticks(1)
        groups = await store_of(hands).groups()
        assert [(group.fingerprint, group.count) for group in groups] == [("x", 2), ("y", 1)]
        assert (groups[0].error, groups[0].name, groups[0].kind) == ("boom 2", "Probe", "E")
        assert abs(groups[0].last_at - groups[0].first_at - 2 * hands.tick) < hands.tick / 2
        (only,) = (await store_of(hands).page(fingerprint="y"))[0]
        assert only.error == "boom 1"

    @needs("failed")
    async def test_a_retry_moves_the_job_back_as_it_was(self, hands: Hands) -> None:
        sent = await hands.push(max_attempts=2, meta={"tenant": 7}, delay=hands.tick)
        await hands.pass_ticks(1.1)
        await hands.fail(await hands.take())
        assert await store_of(hands).retry(sent.id) == Pushed(sent.id)
        assert await store_of(hands).get(sent.id) is None
        claim = await hands.take()
        assert (claim.envelope, claim.attempt, claim.releases) == (sent, 1, 0)
        await hands.finish(claim)
        assert await hands.is_idle()

    @needs("failed")
    async def test_of_many_concurrent_retries_one_moves_it(self, hands: Hands) -> None:
        """B58."""
        job_id = await fail_one(hands)
        sides = [store_of(hands), store_of(await hands.other())]
        answers = await asyncio.gather(*(sides[n % 2].retry(job_id) for n in range(6)))
        assert sorted(answers, key=str) == [None] * 5 + [Pushed(job_id)]
        assert (await hands.take()).id == job_id
        assert await hands.is_idle()

    @needs("failed", "unique jobs")
    async def test_a_retry_takes_the_unique_key_again_or_stays(self, hands: Hands) -> None:
        unique = Unique(key="k")
        job_id = await fail_one(hands, unique=unique)
        holder = await hands.push(unique=unique)
        assert await store_of(hands).retry(job_id) == Pushed(job_id, holder.id)
        assert await store_of(hands).get(job_id) is not None
        await hands.finish(await hands.take())
        assert await store_of(hands).retry(job_id) == Pushed(job_id)
        refused = hands.envelope(unique=unique)
        assert list(await hands.adapter.push([refused])) == [Pushed(refused.id, job_id)]

    @needs("failed")
    async def test_a_retried_job_that_fails_again_is_one_record(self, hands: Hands) -> None:
        job_id = await fail_one(hands)
        await store_of(hands).retry(job_id)
        await hands.fail(await hands.take(), "again")
        assert await store_of(hands).count() == 1
        kept = await store_of(hands).get(job_id)
        assert kept
        assert kept.error == "again"

    @needs("failed", "fencing")
    async def test_a_refused_settlement_keeps_no_record(self, hands: Hands) -> None:
        await hands.push()
        loser = await hands.take()
        await hands.pass_ticks(3.1)
        winner = await hands.take()
        await hands.settle(loser, failed=failed_record(loser))
        assert await store_of(hands).count() == 0
        await hands.finish(winner)
