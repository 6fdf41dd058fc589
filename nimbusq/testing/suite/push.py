"""Push: once by id, all or none, and it comes back as it was sent."""

from __future__ import annotations

import pytest

from nimbusq.driver import Pushed
from nimbusq.envelope import ChainRest, Envelope
from nimbusq.errors import UnsupportedByDriver
from nimbusq.testing.suite.hands import Hands, ids, queue_only, settle_all
from nimbusq.testing.suite.needs import needs


class PushSuite:
    async def test_a_pushed_job_is_pending(self, hands: Hands) -> None:
        await hands.push()
        assert await hands.counts() in {(1, 0, 0), (None, None, None)}

    async def test_a_job_comes_back_as_it_was_sent(self, hands: Hands) -> None:
        sent = await hands.push(
            body=b'{"text":"\xc3\xa9\xf0\x9f\x91\xa9\\n"}',
            max_attempts=7,
            expires_in=86_400.0,
            timeout=1.5,
            tags=("a", "b"),
            silenced=True,
            trace={"traceparent": "00-1-2-01"},
            meta={"tenant": 7, "nested": {"list": [1, None, "x"]}},
            extra={"from_a_newer_version": [1, 2]},
        )
        claim = await hands.take()
        assert claim.envelope == sent
        assert (claim.id, claim.queue, claim.attempt, claim.releases) == (sent.id, "probe", 1, 0)
        assert (claim.reclaimed, claim.ending) == (False, None)

    @needs("atomic steps")
    async def test_a_chain_comes_back_as_it_was_sent(self, hands: Hands) -> None:
        rest = (hands.envelope().to_text(), hands.envelope(body=b"\xff\xfe").to_text())
        chain = ChainRest(id="c1", index=0, name="etl", rest=rest, on_failure=hands.envelope().to_text())
        sent = await hands.push(chain=chain)
        claim = await hands.take()
        assert claim.envelope == sent
        assert isinstance(claim.envelope, Envelope)
        assert isinstance(claim.envelope.chain, ChainRest)
        assert claim.envelope.chain.rest == rest

    async def test_an_empty_body_and_one_of_any_bytes_survive(self, hands: Hands) -> None:
        bodies = [b"", b"\n\n", bytes(range(256))]
        pushed = [hands.envelope(body=body) for body in bodies]
        await hands.adapter.push(pushed)
        claims = await hands.claim()
        found = {claim.id: claim.envelope for claim in claims}
        assert found == {envelope.id: envelope for envelope in pushed}

    async def test_pushing_nothing_answers_nothing(self, hands: Hands) -> None:
        assert list(await hands.adapter.push([])) == []

    @needs("atomic steps")
    async def test_one_that_cannot_be_encoded_keeps_all_of_the_call_out(self, hands: Hands) -> None:
        bad = hands.envelope(meta={"object": object()})
        with pytest.raises(TypeError):
            await hands.adapter.push([hands.envelope(), bad, hands.envelope()])
        assert await hands.counts() == (0, 0, 0)

    async def test_what_is_changed_after_the_push_stays_outside(self, hands: Hands) -> None:
        meta = {"tenants": [7]}
        await hands.push(meta=meta)
        meta["tenants"].append(8)
        claim = await hands.take()
        assert isinstance(claim.envelope, Envelope)
        assert claim.envelope.meta == {"tenants": [7]}

    @needs("atomic steps")
    async def test_the_same_id_again_changes_nothing(self, hands: Hands) -> None:
        sent = await hands.push(body=b"first")
        again = hands.envelope(id=sent.id, body=b"second", priority=1)
        assert list(await hands.adapter.push([again])) == [Pushed(sent.id)]
        claim = await hands.take()
        assert claim.envelope == sent
        assert list(await hands.adapter.push([again])) == [Pushed(sent.id)], "while it runs"
        await hands.finish(claim)
        assert await hands.is_idle()

    @needs("atomic steps")
    async def test_the_same_id_twice_in_one_call_is_one_job(self, hands: Hands) -> None:
        envelope = hands.envelope()
        assert list(await hands.adapter.push([envelope, envelope])) == [Pushed(envelope.id)] * 2
        assert ids(await hands.claim()) == [envelope.id]

    async def test_many_jobs_in_one_call(self, hands: Hands) -> None:
        sent = await hands.push_many(250)
        claims = await hands.claim_all()
        assert sorted(ids(claims)) == sorted(ids(sent))
        await settle_all(hands.adapter, claims)
        assert await hands.is_idle()

    async def test_queues_are_apart(self, hands: Hands) -> None:
        here, there = hands.envelope(queue="one"), hands.envelope(queue="one.two")
        await hands.adapter.push([here, there])
        assert ids(await hands.claim(lanes=queue_only("one"))) == [here.id]
        assert ids(await hands.claim(lanes=queue_only("one.two"))) == [there.id]

    async def test_another_process_sees_the_job(self, hands: Hands) -> None:
        sent = await hands.push()
        claim = await (await hands.other()).take()
        assert claim.id == sent.id
        await hands.finish(claim)

    async def test_a_transaction_is_refused_where_there_is_none(self, hands: Hands) -> None:
        if hands.adapter.capabilities.transactional:
            return
        with pytest.raises(UnsupportedByDriver, match="transaction"):
            await hands.adapter.push([hands.envelope()], tx=object())
        assert await hands.is_idle()
