"""The end of a batch: once, exactly when the last member has ended, with its callbacks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from nimbusq.driver import (
    BatchRecord,
    BatchUpdate,
    Cancelled,
    Done,
    Ending,
    Failed,
    NewBatch,
    Retry,
    Settlement,
    SettleStatus,
)
from nimbusq.envelope import Callback, Envelope
from nimbusq.ids import derived_id
from nimbusq.testing.suite.batches import counters, end_members, members, open_batch, state_of, store_of
from nimbusq.testing.suite.hands import Hands, new_id
from nimbusq.testing.suite.needs import needs


def callback(hands: Hands, kind: Any, batch_id: str) -> Envelope:
    return hands.envelope(
        id=derived_id(batch_id, kind), queue="callbacks", callback=Callback(kind=kind, of=batch_id)
    )


async def open_with_callbacks(hands: Hands, count: int = 3, **fields: Any) -> str:
    batch_id = new_id()
    await store_of(hands).create(
        NewBatch(
            id=batch_id,
            then=callback(hands, "then", batch_id),
            finally_=callback(hands, "finally", batch_id),
            **fields,
        )
    )
    await store_of(hands).add(batch_id, members(hands, batch_id, count), offset=0)
    return batch_id


async def callbacks(hands: Hands) -> list[str]:
    """Kinds of the callbacks that were pushed since the last look."""
    kinds = []
    for claim in await replace(hands, queue="callbacks").claim():
        assert isinstance(claim.envelope, Envelope)
        assert claim.envelope.callback
        kinds.append(claim.envelope.callback.kind)
        await hands.finish(claim)
    return sorted(kinds)


async def end(hands: Hands, batch_id: str, *, failed: bool = False) -> BatchUpdate:
    """Claim one member and end it."""
    claim = await hands.take(limit=1)
    record = BatchRecord(batch_id=batch_id, member=claim.id, failed=failed, error="boom" if failed else None)
    settled = await hands.finish(claim, Failed("boom") if failed else Done(), record=record)
    assert settled.batch is not None
    return settled.batch


class BatchEndSuite:
    @needs("batches")
    async def test_the_last_member_of_a_sealed_batch_ends_it(self, hands: Hands) -> None:
        batch_id = await open_with_callbacks(hands, 2)
        await store_of(hands).seal(batch_id)
        first = await end(hands, batch_id)
        assert (first.counted, first.finished, counters(first.state)) == (True, False, (2, 1, 0))
        assert await callbacks(hands) == []
        second = await end(hands, batch_id)
        assert (second.counted, second.finished, counters(second.state)) == (True, True, (2, 0, 0))
        assert second.state.finished_at is not None
        assert await callbacks(hands) == ["finally", "then"]
        state = await state_of(hands, batch_id)
        assert (state.finished, state.progress, state.processed) == (True, 1.0, 2)

    @needs("batches")
    async def test_a_failed_member_leaves_then_out(self, hands: Hands) -> None:
        batch_id = await open_with_callbacks(hands, 3)
        await store_of(hands).seal(batch_id)
        await end_members(hands, batch_id, failing=1)
        state = await state_of(hands, batch_id)
        assert (counters(state), state.errors) == ((3, 0, 1), ("boom 0",))
        assert await callbacks(hands) == ["finally"]

    @needs("batches")
    async def test_an_open_batch_does_not_end(self, hands: Hands) -> None:
        """B16: it may finish its members faster than its producer sends them."""
        batch_id = await open_with_callbacks(hands, 2)
        await end_members(hands, batch_id)
        state = await state_of(hands, batch_id)
        assert (counters(state), state.finished, state.sealed) == ((2, 0, 0), False, False)
        assert await callbacks(hands) == []
        update = await store_of(hands).seal(batch_id)
        assert (update.finished, update.state.finished) == (True, True)
        assert await callbacks(hands) == ["finally", "then"]

    @needs("batches")
    async def test_sealing_again_ends_nothing_again(self, hands: Hands) -> None:
        batch_id = await open_with_callbacks(hands, 0)
        first = await store_of(hands).seal(batch_id)
        again = await store_of(hands).seal(batch_id)
        assert (first.finished, again.finished, again.state.finished) == (True, False, True)
        assert await callbacks(hands) == ["finally", "then"]
        assert await callbacks(hands) == []

    @needs("batches")
    async def test_a_settlement_that_is_refused_counts_nothing(self, hands: Hands) -> None:
        """B06: the loser's record and the winner's are one."""
        batch_id = await open_with_callbacks(hands, 2)
        await store_of(hands).seal(batch_id)
        losers = await hands.claim()
        await hands.pass_ticks(3.1)
        winners = await hands.claim()
        for claim in losers:
            record = BatchRecord(batch_id=batch_id, member=claim.id, failed=False)
            assert (await hands.settle(claim, record=record)).status is SettleStatus.LOST
        assert counters(await state_of(hands, batch_id)) == (2, 2, 0)
        for claim in winners:
            await hands.finish(claim, record=BatchRecord(batch_id=batch_id, member=claim.id, failed=False))
        assert counters(await state_of(hands, batch_id)) == (2, 0, 0)
        assert await callbacks(hands) == ["finally", "then"]

    @needs("batches")
    async def test_a_retry_records_nothing(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 1)
        settled = await hands.finish(await hands.take(), Retry(0, "boom"))
        assert settled.batch is None
        assert counters(await state_of(hands, batch_id)) == (1, 1, 0)

    @needs("batches")
    async def test_of_many_last_members_exactly_one_ends_the_batch(self, hands: Hands) -> None:
        batch_id = await open_with_callbacks(hands, 20)
        await store_of(hands).seal(batch_id)
        sides = [hands, await hands.other()]
        claims = await hands.claim_all()
        records = [BatchRecord(batch_id=batch_id, member=claim.id, failed=False) for claim in claims]
        settled = await asyncio.gather(
            *(sides[n % 2].finish(c, record=r) for n, (c, r) in enumerate(zip(claims, records, strict=True)))
        )
        updates = [answer.batch for answer in settled if answer.batch]
        assert [update.counted for update in updates] == [True] * 20
        assert [update.finished for update in updates].count(True) == 1
        assert await callbacks(hands) == ["finally", "then"]

    @needs("batches")
    async def test_a_whole_batch_settled_in_one_call(self, hands: Hands) -> None:
        batch_id = await open_with_callbacks(hands, 10)
        await store_of(hands).seal(batch_id)
        settled = await hands.adapter.settle(
            [
                Settlement(
                    claim=claim,
                    outcome=Done(),
                    record=BatchRecord(batch_id=batch_id, member=claim.id, failed=False),
                )
                for claim in await hands.claim_all()
            ]
        )
        assert [answer.batch.finished for answer in settled if answer.batch].count(True) == 1
        assert counters(await state_of(hands, batch_id)) == (10, 0, 0)
        assert await callbacks(hands) == ["finally", "then"]

    @needs("batches")
    async def test_the_first_fifty_errors_are_kept(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 60)
        await end_members(hands, batch_id, failing=60)
        state = await state_of(hands, batch_id)
        assert (counters(state), len(state.errors)) == ((60, 0, 60), 50)

    @needs("batches")
    async def test_a_cancelled_batch_hands_its_queued_members_out_to_be_ended(self, hands: Hands) -> None:
        batch_id = await open_with_callbacks(hands, 3)
        await store_of(hands).seal(batch_id)
        running = await hands.take(limit=1)
        update = await store_of(hands).cancel(batch_id)
        assert (update.state.cancelled, update.finished, counters(update.state)) == (True, False, (3, 3, 0))
        endings = await hands.claim(limit=1)
        assert [claim.ending for claim in endings] == [Ending.CANCELLED] * 2
        assert [claim.attempt for claim in endings] == [0, 0]
        for claim in endings:
            record = BatchRecord(batch_id=batch_id, member=claim.id, failed=True, error="cancelled")
            await hands.finish(claim, Cancelled("batch"), record=record)
        assert await callbacks(hands) == []
        record = BatchRecord(batch_id=batch_id, member=running.id, failed=False)
        settled = await hands.finish(running, record=record)
        assert settled.batch
        assert (settled.batch.finished, counters(settled.batch.state)) == (True, (3, 0, 2))
        assert await callbacks(hands) == ["finally"]

    @needs("batches")
    async def test_cancelling_seals_so_that_an_abandoned_batch_can_end(self, hands: Hands) -> None:
        batch_id = await open_with_callbacks(hands, 1)
        await end_members(hands, batch_id)
        update = await store_of(hands).cancel(batch_id)
        assert (update.finished, update.state.sealed, update.state.cancelled) == (True, True, True)
        assert await callbacks(hands) == ["finally", "then"]

    @needs("batches")
    async def test_a_failure_cancels_a_batch_that_asked_for_it(self, hands: Hands) -> None:
        batch_id = await open_with_callbacks(hands, 2, cancel_on_failure=True)
        await store_of(hands).seal(batch_id)
        update = await end(hands, batch_id, failed=True)
        assert (update.state.cancelled, update.finished) == (True, False)
        assert (await hands.take_ending()).ending is Ending.CANCELLED

    @needs("batches")
    async def test_the_callback_for_failed_members_is_kept_with_the_batch(self, hands: Hands) -> None:
        catch = hands.envelope(callback=Callback(kind="catch", of="b"))
        batch_id = await open_batch(hands, 1, catch=catch)
        update = await end(hands, batch_id, failed=True)
        assert update.state.catch == catch
        assert await hands.is_idle(), "core pushes copies of it, no driver does"

    @needs("batches")
    async def test_a_batch_is_forgotten_a_week_after_its_last_update(self, hands: Hands) -> None:
        week = 7 * 86_400
        batch_id = await open_batch(hands, 2)
        await hands.env.advance(week - 3600)
        claims = await hands.claim()
        record = BatchRecord(batch_id=batch_id, member=claims[0].id, failed=False)
        await hands.finish(claims[0], record=record)
        await hands.env.advance(week - 3600)
        assert counters(await state_of(hands, batch_id)) == (2, 1, 0)
        await hands.env.advance(2 * 3600)
        assert await store_of(hands).find(batch_id) is None
