"""A failing network between the adapter and its caller: every call can be repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from nimbusq.driver import BatchRecord, Claim, Done, NewBatch, Settled, Settlement
from nimbusq.envelope import Envelope
from nimbusq.errors import StoreUnavailable
from nimbusq.ids import derived_id
from nimbusq.testing.faults import FaultPlan, Faults, FaultyAdapter
from nimbusq.testing.suite.batches import counters, members, state_of
from nimbusq.testing.suite.hands import Hands, ids, new_id, queue_only, settle_all
from nimbusq.testing.suite.needs import needs

R = TypeVar("R")


async def until_it_answers(call: Callable[[], Awaitable[R]]) -> R:
    """Repeat a call as a careful client does: the very same one."""
    for _ in range(200):
        try:
            return await call()
        except StoreUnavailable:
            continue
    raise AssertionError("200 attempts failed: the faults are no share of the calls")


def faulty(hands: Hands, **plan: float) -> FaultyAdapter:
    return FaultyAdapter(hands.adapter, Faults(FaultPlan(**plan)))  # type: ignore[arg-type]  # a test's keywords


class FaultSuite:
    @needs("atomic steps")
    async def test_repeated_calls_do_everything_once(self, hands: Hands) -> None:
        """B02: a fifth of the requests and a fifth of the replies are lost."""
        adapter = faulty(hands, before=0.2, after=0.2, seed=1)
        sent = [hands.envelope() for _ in range(60)]
        for envelope in sent:
            await until_it_answers(lambda e=envelope: adapter.push([e]))  # type: ignore[misc]  # bound at once
        assert await hands.counts() == (60, 0, 0)

        done: list[str] = []
        while claims := await _claim(hands, adapter):
            await _settle(hands, adapter, claims)
            done += ids(claims)
        assert sorted(done) == sorted(ids(sent))
        follows = await hands.claim_all(lanes=queue_only("after", limit=100))
        assert sorted(ids(follows)) == sorted(derived_id(job_id, "after") for job_id in done)
        assert await hands.counts() == (0, 0, 0)
        assert adapter.faults.lost_requests > 10
        assert adapter.faults.lost_replies > 10

    @needs("batches")
    async def test_a_batch_is_exact_over_a_bad_network(self, hands: Hands) -> None:
        adapter = faulty(hands, before=0.2, after=0.2, seed=2)
        store = adapter.stores.batches
        assert store
        batch_id = new_id()
        envelopes = members(hands, batch_id, 30)
        await until_it_answers(lambda: store.create(NewBatch(id=batch_id)))
        mark = 0
        while mark < 30:
            chunk = envelopes[mark : mark + 4]
            mark = (await until_it_answers(lambda c=chunk, m=mark: store.add(batch_id, c, offset=m))).mark  # type: ignore[misc]  # bound at once
        await until_it_answers(lambda: store.seal(batch_id))
        while claims := await _claim(hands, adapter):
            await _settle(hands, adapter, claims, batch_id)
        state = await state_of(hands, batch_id)
        assert (counters(state), state.finished) == ((30, 0, 0), True)

    @needs("timed leases", "atomic steps")
    async def test_what_a_cut_off_worker_held_comes_back(self, hands: Hands) -> None:
        sent = await hands.push_many(6)
        adapter = faulty(hands, cut_after=1)
        claims = (await adapter.claim(hands.want(limit=4))).claims
        for claim in claims:
            try:
                await adapter.settle([Settlement(claim=claim, outcome=Done())])
            except StoreUnavailable:
                continue
        await hands.pass_ticks(3.1)
        again = await hands.claim_all()
        assert sorted(ids(again)) == sorted(ids(sent))
        assert sorted(claim.attempt for claim in again) == [1, 1, 2, 2, 2, 2]
        adapter.faults.heal()
        late = await adapter.settle([Settlement(claim=claim, outcome=Done()) for claim in claims])
        assert {answer.status.value for answer in late} == {"lost"}
        await settle_all(hands.adapter, again)


async def _claim(hands: Hands, adapter: FaultyAdapter) -> list[Claim]:
    want = hands.want(limit=4)
    return list((await until_it_answers(lambda: adapter.claim(want))).claims)


async def _settle(
    hands: Hands, adapter: FaultyAdapter, claims: list[Claim], batch_id: str | None = None
) -> list[Settled]:
    settlements = [
        Settlement(
            claim=claim,
            outcome=Done(),
            push=(_follow(hands, claim),) if batch_id is None else (),
            record=BatchRecord(batch_id=batch_id, member=claim.id, failed=False) if batch_id else None,
        )
        for claim in claims
    ]
    return list(await until_it_answers(lambda: adapter.settle(settlements)))


def _follow(hands: Hands, claim: Claim) -> Envelope:
    return hands.envelope(id=derived_id(claim.id, "after"), queue="after")
