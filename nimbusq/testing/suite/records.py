"""Results and history: how a job ended, told at once or when it does."""

from __future__ import annotations

import asyncio

from nimbusq.driver import Cancelled, Done, Ended, History, HistoryRow, Results
from nimbusq.testing.suite.hands import Hands, history_row, new_id
from nimbusq.testing.suite.needs import needs


def results_of(hands: Hands) -> Results:
    results = hands.adapter.stores.results
    assert results is not None
    return results


def history_of(hands: Hands) -> History:
    history = hands.adapter.stores.history
    assert history is not None
    return history


async def finish_one(hands: Hands, result: bytes | None = None, **fields: object) -> str:
    """Push a job and finish it, with a history row."""
    sent = await hands.push()
    claim = await hands.take()
    await hands.finish(claim, Done(result), history=history_row(claim, "done"), **fields)
    return sent.id


class RecordSuite:
    @needs("results")
    async def test_a_result_is_told_at_once_when_the_job_has_ended(self, hands: Hands) -> None:
        job_id = await finish_one(hands, b'{"n":1}\x00\xff')
        other = results_of(await hands.other())
        assert await other.wait(job_id, 0) == Ended(state="done", result=b'{"n":1}\x00\xff')

    @needs("results")
    async def test_a_result_lasts_for_its_time(self, hands: Hands) -> None:
        job_id = await finish_one(hands, b"1", result_ttl=2 * hands.tick)
        await hands.pass_ticks(1)
        assert (await results_of(hands).wait(job_id, 0)) == Ended(state="done", result=b"1")
        await hands.pass_ticks(1.1)
        ended = await results_of(hands).wait(job_id, 0)
        assert ended
        assert ended.result is None

    @needs("results", "history")
    async def test_a_job_without_a_result_is_known_from_the_history(self, hands: Hands) -> None:
        job_id = await finish_one(hands)
        assert await results_of(hands).wait(job_id, 0) == Ended(state="done")

    @needs("results", "failed")
    async def test_failed_and_cancelled_jobs_tell_why(self, hands: Hands) -> None:
        failed = await hands.push()
        await hands.fail(await hands.take(), "boom: 42")
        assert await results_of(hands).wait(failed.id, 0) == Ended(state="failed", error="boom: 42")
        cancelled = await hands.push()
        claim = await hands.take()
        await hands.finish(claim, Cancelled("no"), history=history_row(claim, "cancelled", "no"))
        assert await results_of(hands).wait(cancelled.id, 0) == Ended(state="cancelled", error="no")

    @needs("results")
    async def test_an_unknown_job_is_unknown_at_once(self, hands: Hands) -> None:
        assert await results_of(hands).wait(new_id(), 60) == Ended(state="unknown")

    @needs("results", "history", "atomic steps")
    async def test_a_job_that_left_no_record_is_unknown(self, hands: Hands) -> None:
        sent = await hands.push()
        await hands.finish(await hands.take())
        assert await results_of(hands).wait(sent.id, 60) == Ended(state="unknown")

    @needs("results")
    async def test_a_wait_ends_with_its_timeout(self, hands: Hands) -> None:
        sent = await hands.push()
        assert await results_of(hands).wait(sent.id, 0) is None
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            waiting = group.create_task(results_of(hands).wait(sent.id, 0.2))
            await asyncio.sleep(0)
            await hands.env.advance(0.25)
        assert waiting.result() is None

    @needs("results")
    async def test_a_wait_ends_with_the_job(self, hands: Hands) -> None:
        sent = await hands.push()
        other = await hands.other()
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            waiting = group.create_task(results_of(hands).wait(sent.id, 15))
            await asyncio.sleep(0.02)  # let it wait; no event tells when it does
            claim = await other.take()
            await other.finish(claim, Done(b"1"))
            await hands.env.advance(1)  # where a store is polled for results
        assert waiting.result() == Ended(state="done", result=b"1")

    @needs("history")
    async def test_rows_come_newest_first_in_pages(self, hands: Hands) -> None:
        made = []
        for _ in range(5):
            made.append(await finish_one(hands))
            await hands.pass_ticks(0.01)
        first, cursor = await history_of(hands).page(limit=3)
        assert [row.id for row in first] == made[:1:-1]
        second, end = await history_of(hands).page(cursor=cursor, limit=3)
        assert [row.id for row in second] == [made[1], made[0]]
        assert end == ""

    @needs("history")
    async def test_a_row_is_kept_as_it_was_with_the_stores_time(self, hands: Hands) -> None:
        row = HistoryRow(
            id=new_id(),
            queue="a",
            name="Probe",
            state="failed",
            attempt=3,
            waited=1.5,
            duration=0.25,
            error="boom",
            worker="w1",
            tags=("x", "y"),
            silenced=True,
        )
        await history_of(hands).push([row])
        (kept,) = (await history_of(hands).page())[0]
        assert kept._replace(finished_at=0.0) == row
        assert kept.finished_at > 1_000_000_000

    @needs("history")
    async def test_pages_can_be_of_one_state_or_queue(self, hands: Hands) -> None:
        rows = [
            HistoryRow(id=new_id(), queue="a", name="Probe", state="done", attempt=1),
            HistoryRow(id=new_id(), queue="a", name="Probe", state="failed", attempt=1),
            HistoryRow(id=new_id(), queue="b", name="Probe", state="done", attempt=1),
        ]
        await history_of(hands).push(rows)
        done, _ = await history_of(hands).page(state="done")
        assert sorted(row.id for row in done) == sorted([rows[0].id, rows[2].id])
        both, _ = await history_of(hands).page(state="done", queue="b")
        assert [row.id for row in both] == [rows[2].id]

    @needs("history")
    async def test_a_row_is_replaced_by_its_id(self, hands: Hands) -> None:
        row = HistoryRow(id=new_id(), queue="a", name="Probe", state="failed", attempt=1)
        await history_of(hands).push([row])
        await history_of(hands).push([row._replace(state="done", attempt=2)])
        (kept,) = (await history_of(hands).page())[0]
        assert (kept.state, kept.attempt) == ("done", 2)

    @needs("history", "atomic steps")
    async def test_no_row_in_the_settlement_no_row_in_the_history(self, hands: Hands) -> None:
        await hands.push()
        await hands.finish(await hands.take())
        assert list((await history_of(hands).page())[0]) == []

    @needs("history")
    async def test_rows_older_than_a_day_are_not_shown(self, hands: Hands) -> None:
        await finish_one(hands)
        await hands.env.advance(86_400 + 60)
        await finish_one(hands)
        assert len((await history_of(hands).page())[0]) == 1

    @needs("history", "results")
    async def test_a_result_can_be_kept_for_another_driver(self, hands: Hands) -> None:
        job_id = new_id()
        await history_of(hands).keep_result(job_id, b"1", 2 * hands.tick)
        assert await results_of(hands).wait(job_id, 0) == Ended(state="done", result=b"1")
