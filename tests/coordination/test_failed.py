"""The failed store: what failed for good, until somebody retries or forgets it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from nimbusq import Batch, DuplicateJob, Job, Manager, Worker, dispatch, dispatch_many, job
from nimbusq.driver import FailedRecord
from nimbusq.envelope import Envelope, decode
from nimbusq.failed import retry, retry_matching
from nimbusq.ids import derived_id
from tests.coordination.place import Place, workers
from tests.coordination.programs import shop


def store_of(manager: Manager) -> Any:
    return manager.require("failed", "a failed store")


async def drained(here: Place, manager: Manager, *queues: str) -> None:
    """Everything that waits has run."""
    async with workers(Worker(manager, list(queues) or "default", lease=2)):
        await here.until_empty(manager, *queues)


async def all_of(manager: Manager, **filters: Any) -> list[FailedRecord]:
    """Every record, page by page of two."""
    found: list[FailedRecord] = []
    cursor, more = "", True
    while more:
        records, cursor = await store_of(manager).page(cursor=cursor, limit=2, **filters)
        assert len(records) <= 2
        found += records
        more = bool(cursor)
    return found


class Charge(Job, retries=2, backoff=0.05, queue="money"):
    account: int

    async def handle(self) -> None:
        raise ValueError(f"no account {self.account}")


async def test_a_record_tells_all_there_is_to_know(here: Place) -> None:
    async with here.manager() as manager:
        receipt = await dispatch(Charge(account=7)).tags("t").send()
        await drained(here, manager, "money")
        record = await store_of(manager).get(receipt.id)
        now = await manager.require("schedules", "").now()
        assert (record.id, record.queue, record.name) == (receipt.id, "money", "Charge")
        assert (record.error, record.kind) == ("ValueError: no account 7", "ValueError")
        assert (record.attempts, record.max_attempts) == (3, 3)
        assert record.failed_at == pytest.approx(now, abs=30)
        assert re.search(r'raise ValueError\(f"no account {self.account}"\)', record.traceback)
        assert re.fullmatch("[0-9a-f]{16}", record.fingerprint)
        envelope = decode(record.wire)
        assert isinstance(envelope, Envelope)
        assert (envelope.body, envelope.tags) == (b'{"account":7}', ("t",))


async def test_records_come_newest_first_in_pages_by_queue_and_by_cause(here: Place) -> None:
    async with here.manager() as manager:
        for number in range(5):
            await dispatch(shop.broken, f"b{number}").send()
            await drained(here, manager)
        await dispatch(Charge(account=1)).retries(0).send()
        await drained(here, manager, "money")
        everything = await all_of(manager)
        assert [record.error for record in everything] == [
            "ValueError: no account 1",
            *(f"ValueError: b{number}" for number in (4, 3, 2, 1, 0)),
        ]
        assert await store_of(manager).count() == 6
        assert await store_of(manager).count(queue="money") == 1
        assert await all_of(manager, queue="money") == everything[:1]
        assert await all_of(manager, fingerprint=everything[1].fingerprint) == everything[1:]


async def test_groups_are_failures_of_one_cause_the_greatest_first(here: Place) -> None:
    @job(retries=0)
    async def two_ways(way: str) -> None:
        if way == "value":
            raise ValueError(way)
        raise KeyError(way)

    async with here.manager() as manager:
        await dispatch_many([dispatch(two_ways, "value") for _ in range(3)] + [dispatch(two_ways, "key")])
        await drained(here, manager)
        first, second = await store_of(manager).groups()
        assert (first.name, first.kind, first.count) == ("two_ways", "ValueError", 3)
        assert (second.name, second.kind, second.count) == ("two_ways", "KeyError", 1)
        assert first.error == "ValueError: value"
        assert first.first_at <= first.last_at
        assert first.fingerprint != second.fingerprint


# --- retry (B58) -------------------------------------------------------------------------------------------------


async def test_a_retry_keeps_what_the_job_was_and_begins_its_attempts_anew(here: Place) -> None:
    async with here.manager() as manager:
        builder = dispatch(shop.flaky, "x", 1).retries(0).tags("t").priority(3).delay(0.05).timeout(5)
        receipt = await builder.send()
        await drained(here, manager)
        before = decode((await store_of(manager).get(receipt.id)).wire)
        assert (await retry([receipt.id])).retried == 1
        assert await store_of(manager).get(receipt.id) is None
        view = await receipt.refresh()
        assert view is not None
        assert (view.id, view.state, view.attempt) == (receipt.id, "ready", 0), (
            "due now, whatever its delay was"
        )
        assert view.envelope == before
        await drained(here, manager)
        assert [line[3] for line in here.notes("start")] == ["1", "1"]
        record = await store_of(manager).get(receipt.id)
        assert (record.attempts, record.error) == (1, "ValueError: x")


async def test_of_three_concurrent_retries_one_moves_the_job(here: Place) -> None:
    async with here.manager() as manager:
        receipt = await dispatch(shop.broken, "x").send()
        await drained(here, manager)
        answers = await asyncio.gather(*(retry([receipt.id]) for _ in range(3)))
        assert sorted(answer.retried for answer in answers) == [0, 0, 1]
        assert sorted(answer.missing for answer in answers) == [(), (receipt.id,), (receipt.id,)]
        await drained(here, manager)
    assert here.counts("start") == {"x": 2}


async def test_a_conflict_of_unique_keys_keeps_the_record_and_says_who_holds_the_key(here: Place) -> None:
    async with here.manager() as manager:
        failed = await dispatch(shop.broken, "x").unique("k").send()
        await drained(here, manager)
        holder = await dispatch(shop.broken, "x").unique("k").send()
        answer = await retry([failed.id, "unknown"])
        assert (answer.retried, answer.missing, dict(answer.conflicts)) == (
            0,
            ("unknown",),
            {failed.id: holder.id},
        )
        assert await store_of(manager).get(failed.id) is not None
        assert (await manager.depth()).pending == 1
        await holder.cancel()
        assert (await retry([failed.id])).retried == 1
        with pytest.raises(DuplicateJob) as told:
            await dispatch(shop.broken, "x").unique("k").send()
        assert told.value.job_id == failed.id, "the retried job has its slot again"


async def test_a_retried_member_counts_no_more_and_a_retried_link_goes_on(here: Place) -> None:
    """The chain's part is in test_chains."""
    async with here.manager() as manager:
        batch = await Batch([dispatch(shop.broken, "x")]).send()
        await drained(here, manager)
        before = await batch.refresh()
        member = derived_id(batch.id, 0)
        record = await store_of(manager).get(member)
        envelope = decode(record.wire)
        assert isinstance(envelope, Envelope)
        assert envelope.batch_id == batch.id
        assert (await retry([member])).retried == 1
        await drained(here, manager)
        after = await batch.refresh()
        assert (after.total, after.pending, after.failed, after.finished_at) == (1, 0, 1, before.finished_at)


async def test_many_are_retried_by_queue_and_by_cause(here: Place) -> None:
    async with here.manager() as manager:
        await dispatch_many([dispatch(shop.broken, f"b{n}") for n in range(250)])
        await dispatch(Charge(account=1)).retries(0).send()
        async with workers(Worker(manager, ["default", "money"], lease=2, concurrency=50)):
            await here.until_empty(manager, "default", "money")
        (charge,) = await all_of(manager, queue="money")
        assert (await retry_matching(fingerprint=charge.fingerprint)).retried == 1
        assert (await retry_matching(queue="default")).retried == 250, "more than one page"
        assert await store_of(manager).count() == 0
        assert (await manager.depth()).pending == 250
        assert (await manager.depth("money")).pending == 1


async def test_bytes_that_cannot_be_read_are_pushed_again_as_they_are(here: Place) -> None:
    raw = b'{"v":1,"name":"step"\xff\xfe not even JSON'
    async with here.manager() as manager:
        adapter: Any = manager.adapter
        await adapter.push_raw("default", raw, job_id="raw-1")
        await drained(here, manager)
        record = await store_of(manager).get("raw-1")
        assert (record.wire, record.kind) == (raw, "UnreadableJob")
        assert (await retry(["raw-1"])).retried == 1
        await drained(here, manager)
        again = await store_of(manager).get("raw-1")
        assert (again.wire, again.kind, again.queue) == (raw, "UnreadableJob", "default")


async def test_the_original_error_stays_visible(here: Place) -> None:
    """Not only that the last try was one too many."""

    @job(retries=1, backoff=0.01)
    async def chained() -> None:
        raise RuntimeError("the effect") from KeyError("the cause")

    async with here.manager() as manager:
        receipt = await dispatch(chained).send()
        await drained(here, manager)
        record = await store_of(manager).get(receipt.id)
        assert record.error == "RuntimeError: the effect"
        assert "KeyError: 'the cause'" in record.traceback
        rows, _ = await manager.require("history", "").page(state="failed")
        assert [row.error for row in rows] == ["RuntimeError: the effect"]


# --- forgetting --------------------------------------------------------------------------------------------------


async def test_one_is_forgotten(here: Place) -> None:
    async with here.manager() as manager:
        receipt = await dispatch(shop.broken, "x").send()
        await drained(here, manager)
        assert await store_of(manager).forget(receipt.id)
        assert not await store_of(manager).forget(receipt.id)
        assert await store_of(manager).count() == 0
        assert (await retry([receipt.id])).missing == (receipt.id,)


async def test_all_of_a_queue_or_of_an_age_are_forgotten(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        await dispatch(shop.broken, "old").send()
        await drained(here, manager)
        await advance(3600)
        await dispatch(shop.broken, "new").send()
        await dispatch(shop.broken, "other").on_queue("other").send()
        await drained(here, manager, "default", "other")
        assert await store_of(manager).forget_all(older_than=1800) == 1
        assert {record.error for record in await all_of(manager)} == {"ValueError: new", "ValueError: other"}
        assert await store_of(manager).forget_all(queue="other") == 1
        assert await store_of(manager).forget_all() == 1
        assert await store_of(manager).count() == 0


async def test_records_are_kept_until_forgotten(here: Place) -> None:
    async with here.time_machine() as (manager, advance):
        receipt = await dispatch(shop.broken, "x").send()
        await drained(here, manager)
        await advance(400 * 86_400)
        await dispatch(shop.step, "y").send()
        await drained(here, manager)
        assert await store_of(manager).get(receipt.id) is not None


# --- user code around the end (B46) --------------------------------------------------------------------------------


async def test_a_failed_hook_that_raises_changes_nothing(here: Place) -> None:
    class Hooked(Job, retries=0):
        async def handle(self) -> None:
            raise ValueError("the job")

        async def failed(self, error: Exception) -> None:
            shop.note("hook", str(error).replace(" ", "-"))
            raise RuntimeError("the hook")

    async with here.manager() as manager:
        batch = await Batch([Hooked()]).finally_(shop.on_finally).send()
        unique = await dispatch(Hooked()).unique("k").send()
        worker = Worker(manager, lease=2)
        async with workers(worker):
            await here.until_empty(manager)
            await here.until(lambda: len(here.notes("hook")) == 2, "the hooks")
            await dispatch(shop.step, "next").send()
            await here.until(lambda: bool(here.counts("end")["next"]), "the next job", within=5)
            await here.until(
                lambda: worker.counters["default"].get("hook_errors") == 2, "the count of hook errors"
            )
        assert [line[2] for line in here.notes("hook")] == ["the-job", "the-job"]
        assert (await store_of(manager).get(unique.id)).error == "ValueError: the job"
        assert (await batch.refresh()).failed == 1
        assert len(here.notes("finally")) == 1
        assert (await dispatch(Hooked()).unique("k").send()).status == "queued"
