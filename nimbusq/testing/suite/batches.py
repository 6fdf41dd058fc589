"""Batches: members are added once, counted once, and seen by anybody."""

from __future__ import annotations

import pytest

from nimbusq.driver import BatchRecord, BatchState, BatchStore, Done, Failed, NewBatch, Pushed
from nimbusq.envelope import ChainRest, Envelope
from nimbusq.errors import BatchNotFound, InvalidOption
from nimbusq.ids import derived_id
from nimbusq.testing.suite.hands import Hands, ids, new_id
from nimbusq.testing.suite.needs import needs


def store_of(hands: Hands) -> BatchStore:
    batches = hands.adapter.stores.batches
    assert batches is not None
    return batches


def members(hands: Hands, batch_id: str, count: int, start: int = 0) -> list[Envelope]:
    return [
        hands.envelope(id=derived_id(batch_id, n), batch_id=batch_id) for n in range(start, start + count)
    ]


async def open_batch(hands: Hands, count: int = 3, **fields: object) -> str:
    """A batch of that many members, not sealed."""
    batch = NewBatch(id=new_id(), **fields)  # type: ignore[arg-type]  # a test's own keywords
    await store_of(hands).create(batch)
    await store_of(hands).add(batch.id, members(hands, batch.id, count), offset=0)
    return batch.id


async def state_of(hands: Hands, batch_id: str) -> BatchState:
    state = await store_of(hands).find(batch_id)
    assert state is not None
    return state


def counters(state: BatchState) -> tuple[int, int, int]:
    return state.total, state.pending, state.failed


class BatchSuite:
    @needs("batches")
    async def test_a_new_batch_is_open_and_empty(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 0, name="import", cancel_on_failure=True)
        state = await state_of(hands, batch_id)
        assert (state.id, state.name, counters(state)) == (batch_id, "import", (0, 0, 0))
        assert (state.sealed, state.cancelled, state.cancel_on_failure) == (False, False, True)
        assert (state.finished_at, state.errors) == (None, ())
        assert state.created_at > 1_000_000_000

    @needs("batches")
    async def test_creating_it_again_changes_nothing(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 2, name="import")
        await store_of(hands).create(NewBatch(id=batch_id, name="other"))
        state = await state_of(hands, batch_id)
        assert (state.name, counters(state)) == ("import", (2, 2, 0))

    @needs("batches")
    async def test_added_members_are_pushed_and_pending(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 0)
        envelopes = members(hands, batch_id, 20)
        added = await store_of(hands).add(batch_id, envelopes, offset=0)
        assert added.mark == 20
        assert list(added.pushed) == [Pushed(envelope.id) for envelope in envelopes]
        assert counters(await state_of(await hands.other(), batch_id)) == (20, 20, 0)
        assert ids(await hands.claim(20)) == ids(envelopes), "first in, first out"

    @needs("batches")
    async def test_a_chunk_sent_again_is_not_added_again(self, hands: Hands) -> None:
        """The producer whose reply was lost learns the mark and goes on from there."""
        batch_id = await open_batch(hands, 3)
        added = await store_of(hands).add(batch_id, members(hands, batch_id, 3), offset=0)
        assert (added.mark, list(added.pushed)) == (3, [])
        added = await store_of(hands).add(batch_id, members(hands, batch_id, 2, start=3), offset=3)
        assert added.mark == 5
        assert counters(await state_of(hands, batch_id)) == (5, 5, 0)
        assert await hands.counts() == (5, 0, 0)

    @needs("batches")
    async def test_a_chunk_sent_again_after_members_ended_runs_nothing_again(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 2)
        for claim in await hands.claim():
            await hands.finish(claim, record=BatchRecord(batch_id=batch_id, member=claim.id, failed=False))
        added = await store_of(hands).add(batch_id, members(hands, batch_id, 2), offset=0)
        assert added.mark == 2
        assert await hands.is_idle()
        assert counters(await state_of(hands, batch_id)) == (2, 0, 0)

    @needs("batches")
    async def test_members_added_from_inside_are_added_once(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 1)
        inner = [hands.envelope(batch_id=batch_id) for _ in range(2)]
        for _ in range(2):
            added = await store_of(hands).add(batch_id, inner)
            assert added.mark == 1, "the mark counts the producer's members only"
        assert counters(await state_of(hands, batch_id)) == (3, 3, 0)
        assert await hands.counts() == (3, 0, 0)

    @needs("batches")
    async def test_a_sealed_batch_is_closed_to_its_producer_but_not_to_its_jobs(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 1)
        update = await store_of(hands).seal(batch_id)
        assert (update.state.sealed, update.finished) == (True, False)
        with pytest.raises(InvalidOption):
            await store_of(hands).add(batch_id, members(hands, batch_id, 1, start=1), offset=1)
        await store_of(hands).add(batch_id, [hands.envelope(batch_id=batch_id)])
        assert counters(await state_of(hands, batch_id)) == (2, 2, 0)

    @needs("batches")
    async def test_a_producer_that_sends_a_sealed_batch_again_finds_all_of_it(self, hands: Hands) -> None:
        """The reply to its seal was lost: whatever has become of the batch, there is nothing left to do."""
        batch_id = await open_batch(hands, 2)
        sent = members(hands, batch_id, 2)
        await store_of(hands).seal(batch_id)
        for ended in range(3):
            again = await store_of(hands).add(batch_id, sent, offset=0)
            assert (again.mark, list(again.pushed)) == (2, [])
            update = await store_of(hands).seal(batch_id)
            assert (update.state.sealed, update.state.pending, update.finished) == (True, 2 - ended, False)
            if ended < 2:
                member = sent[ended].id
                await store_of(hands).record(BatchRecord(batch_id=batch_id, member=member, failed=False))

    @needs("batches")
    async def test_a_finished_batch_takes_no_more_members(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 0)
        await store_of(hands).seal(batch_id)
        for offset in (0, None):
            with pytest.raises(InvalidOption):
                await store_of(hands).add(batch_id, [hands.envelope(batch_id=batch_id)], offset=offset)
        assert await hands.is_idle()

    @needs("batches")
    async def test_an_unknown_batch_is_not_found(self, hands: Hands) -> None:
        batches, unknown = store_of(hands), new_id()
        assert await batches.find(unknown) is None
        with pytest.raises(BatchNotFound):
            await batches.add(unknown, [hands.envelope(batch_id=unknown)], offset=0)
        with pytest.raises(BatchNotFound):
            await batches.seal(unknown)
        with pytest.raises(BatchNotFound):
            await batches.cancel(unknown)
        with pytest.raises(BatchNotFound):
            await batches.record(BatchRecord(batch_id=unknown, member="m", failed=False))
        assert await hands.is_idle()

    @needs("batches")
    async def test_a_member_of_an_unknown_batch_can_still_be_settled(self, hands: Hands) -> None:
        await hands.push(batch_id="gone")
        claim = await hands.take()
        settled = await hands.finish(
            claim, record=BatchRecord(batch_id="gone", member=claim.id, failed=False)
        )
        assert settled.batch is None

    @needs("batches")
    async def test_recording_by_hand_counts_once(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 2)
        member = derived_id(batch_id, 0)
        record = BatchRecord(batch_id=batch_id, member=member, failed=True, error="boom")
        first, second = [await store_of(hands).record(record) for _ in range(2)]
        assert (first.counted, second.counted) == (True, False)
        assert counters(second.state) == (2, 1, 1)
        assert second.state.errors == ("boom",)

    @needs("batches")
    async def test_a_chain_counts_as_one_member(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 0)
        chain = ChainRest(id=new_id(), rest=(hands.envelope().to_text(),))
        await store_of(hands).add(batch_id, [hands.envelope(batch_id=batch_id, chain=chain)], offset=0)
        assert list((await store_of(hands).members(batch_id))[0]) == [chain.id]
        first = await hands.take()
        second = hands.envelope(
            id=derived_id(chain.id, 1), batch_id=batch_id, chain=ChainRest(id=chain.id, index=1)
        )
        await hands.finish(first, push=(second,))
        assert counters(await state_of(hands, batch_id)) == (1, 1, 0)
        record = BatchRecord(batch_id=batch_id, member=chain.id, failed=False)
        settled = await hands.finish(await hands.take(), record=record)
        assert settled.batch
        assert counters(settled.batch.state) == (1, 0, 0)

    @needs("batches")
    async def test_pending_members_come_in_pages(self, hands: Hands) -> None:
        batch_id = await open_batch(hands, 5)
        claim = await hands.take(limit=1)
        await hands.finish(claim, record=BatchRecord(batch_id=batch_id, member=claim.id, failed=False))
        seen: list[str] = []
        cursor, pages = "", 0
        while cursor or not pages:
            page, cursor = await store_of(hands).members(batch_id, cursor=cursor, limit=3)
            seen += page
            pages += 1
        expected = {derived_id(batch_id, n) for n in range(5)} - {claim.id}
        assert (sorted(seen), pages) == (sorted(expected), 2)

    @needs("batches")
    async def test_batches_are_listed_newest_first_in_pages(self, hands: Hands) -> None:
        made = [await open_batch(hands, 0, name=f"b{n}") for n in range(5)]
        first, cursor = await store_of(hands).list(limit=3)
        assert [state.id for state in first] == made[:1:-1]
        second, end = await store_of(hands).list(cursor=cursor, limit=3)
        assert [state.id for state in second] == [made[1], made[0]]
        assert end == ""


async def end_members(hands: Hands, batch_id: str, *, failing: int = 0) -> None:
    """Settle all members that can be claimed, the first ones as failed."""
    for n, claim in enumerate(await hands.claim_all()):
        failed = n < failing
        record = BatchRecord(
            batch_id=batch_id, member=claim.id, failed=failed, error=f"boom {n}" if failed else None
        )
        await hands.finish(claim, Failed(f"boom {n}") if failed else Done(), record=record)
