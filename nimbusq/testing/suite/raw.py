"""Bytes that are no envelope: claimed like any job, ended like any job, and never lost (B15)."""

from __future__ import annotations

import json

from nimbusq.driver import Pushed, Retry
from nimbusq.envelope import Unreadable
from nimbusq.testing.suite.hands import Hands, ids, new_id, settle_all
from nimbusq.testing.suite.needs import needs

BAD = (
    b"not-json",
    b"{}\n",
    b"",
    b"\xff\xfe\x00",
    b"[1]\n{}",
    b'{"v":1,"id":7,"name":"x","queue":"q"}\n',
    b"x" * 100_000,
)


def newer(hands: Hands) -> bytes:
    """An envelope as a later version may write it."""
    header, _, body = hands.envelope(id="newer").to_wire().partition(b"\n")
    return json.dumps({**json.loads(header), "v": 999}).encode() + b"\n" + body


class RawSuite:
    async def test_unreadable_bytes_come_as_they_are(self, hands: Hands) -> None:
        for raw in BAD:
            job_id = new_id()
            await hands.adapter.push_raw(hands.queue, raw, job_id=job_id)
            claim = await hands.take()
            assert isinstance(claim.envelope, Unreadable)
            assert claim.envelope.raw == raw
            assert claim.envelope.error
            assert (claim.queue, claim.attempt) == ("probe", 1)
            await hands.finish(claim)
            assert await hands.is_idle()

    @needs("atomic steps")
    async def test_good_jobs_behind_them_are_reached(self, hands: Hands) -> None:
        for raw in BAD:
            await hands.adapter.push_raw(hands.queue, raw)
        good = await hands.push_many(5)
        claims = await hands.claim_all()
        assert len(claims) == len(BAD) + 5
        readable = [claim for claim in claims if not isinstance(claim.envelope, Unreadable)]
        assert ids(readable) == ids(good)
        await settle_all(hands.adapter, claims)
        assert await hands.counts() == (0, 0, 0)

    @needs("atomic steps")
    async def test_they_can_be_put_back(self, hands: Hands) -> None:
        await hands.adapter.push_raw(hands.queue, b"not-json", job_id=new_id())
        await hands.finish(await hands.take(), Retry(hands.tick, "unreadable"))
        assert await hands.is_idle()
        await hands.pass_ticks(1.1)
        claim = await hands.take()
        assert isinstance(claim.envelope, Unreadable)
        assert (claim.envelope.raw, claim.attempt) == (b"not-json", 2)

    async def test_an_envelope_of_a_newer_version_keeps_its_header(self, hands: Hands) -> None:
        raw = newer(hands)
        await hands.adapter.push_raw(hands.queue, raw, job_id="newer")
        claim = await hands.take()
        assert isinstance(claim.envelope, Unreadable)
        assert (claim.envelope.raw, claim.envelope.newer) == (raw, True)
        assert claim.envelope.header
        assert (claim.envelope.header.id, claim.envelope.header.name) == ("newer", "Probe")

    async def test_a_good_envelope_can_be_pushed_raw(self, hands: Hands) -> None:
        sent = hands.envelope()
        assert await hands.adapter.push_raw(hands.queue, sent.to_wire(), job_id=sent.id) == Pushed(sent.id)
        assert (await hands.take()).envelope == sent

    @needs("failed")
    async def test_parked_bytes_are_kept_and_pushed_again_as_they_are(self, hands: Hands) -> None:
        failed = hands.adapter.stores.failed
        assert failed
        for raw in (b"not-json", b"\xff\xfe\x00", newer(hands)):
            job_id = new_id()
            await hands.adapter.push_raw(hands.queue, raw, job_id=job_id)
            await hands.fail(await hands.take(), "unreadable")
            kept = await failed.get(job_id)
            assert kept
            assert kept.wire == raw
            assert await failed.retry(job_id) == Pushed(job_id)
            claim = await hands.take()
            assert isinstance(claim.envelope, Unreadable)
            assert (claim.id, claim.queue, claim.envelope.raw, claim.attempt) == (job_id, "probe", raw, 1)
            await hands.finish(claim)
