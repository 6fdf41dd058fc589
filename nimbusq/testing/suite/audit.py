"""The audit itself: every transition once, in order. Without it the checks after each test see nothing."""

from __future__ import annotations

from nimbusq.driver import BatchRecord, Cancelled, Done, NewBatch, PutBack, Retry
from nimbusq.envelope import Overlap, Unique
from nimbusq.testing.audit import AuditEvent
from nimbusq.testing.suite.batches import store_of
from nimbusq.testing.suite.chains import link
from nimbusq.testing.suite.hands import Hands, new_id
from nimbusq.testing.suite.needs import needs


async def events_of(hands: Hands, job_id: str) -> list[AuditEvent]:
    events = [AuditEvent.of(row) for row in await hands.env.audit()]
    return [event for event in events if event.job_id == job_id]


async def named(hands: Hands, job_id: str) -> list[tuple[str, str]]:
    """Event and token of each transition of the job."""
    return [(event.event, event.token) for event in await events_of(hands, job_id)]


class AuditSuite:
    @needs("atomic steps", "timed leases")
    async def test_every_transition_of_a_job_is_recorded_once(self, hands: Hands) -> None:
        job = await hands.push()
        first = await hands.take()
        await hands.extend(first)
        await hands.finish(first, PutBack(0))
        second = await hands.take()
        await hands.pass_ticks(3.1)
        third = await hands.take()
        await hands.finish(third, Retry(0, "boom"))
        fourth = await hands.take()
        await hands.finish(fourth)
        assert await named(hands, job.id) == [
            ("push", ""),
            ("claim", first.token),
            ("extend", first.token),
            ("release", first.token),
            ("claim", second.token),
            ("lost", second.token),
            ("claim", third.token),
            ("retry", third.token),
            ("claim", fourth.token),
            ("done", fourth.token),
        ]
        attempts = [event.attempt for event in await events_of(hands, job.id) if event.event == "claim"]
        assert attempts == [1, 1, 2, 3]

    @needs("atomic steps", "timed leases")
    async def test_what_changes_nothing_is_not_recorded(self, hands: Hands) -> None:
        job = await hands.push()
        await hands.adapter.push([job])
        loser = await hands.take()
        await hands.pass_ticks(3.1)
        want = hands.want()
        await hands.adapter.claim(want)
        (winner,) = (await hands.adapter.claim(want)).claims
        await hands.extend(loser)
        await hands.settle(loser)
        await hands.finish(winner)
        await hands.settle(winner)
        assert [event for event, _ in await named(hands, job.id)] == [
            "push",
            "claim",
            "lost",
            "claim",
            "done",
        ]

    @needs("atomic steps", "timed leases")
    async def test_endings_are_recorded_as_such(self, hands: Hands) -> None:
        lost = await hands.push(max_attempts=1)
        first = await hands.take()
        await hands.pass_ticks(3.1)
        ending = await hands.take_ending()
        await hands.fail(ending)
        assert await named(hands, lost.id) == [
            ("push", ""),
            ("claim", first.token),
            ("lost", first.token),
            ("ending", ending.token),
            ("failed", ending.token),
        ]
        expired = await hands.push(expires_in=hands.tick)
        await hands.pass_ticks(1.1)
        ending = await hands.take_ending()
        await hands.finish(ending, Cancelled("expired"))
        assert await named(hands, expired.id) == [
            ("push", ""),
            ("ending", ending.token),
            ("cancelled", ending.token),
        ]

    @needs("atomic steps", "jobs without overlap")
    async def test_a_job_put_back_in_the_claim_is_a_release_by_nobody(self, hands: Hands) -> None:
        overlap = Overlap(key="k", release_after=hands.tick)
        await hands.push(overlap=overlap)
        await hands.take()
        blocked = await hands.push(overlap=overlap)
        assert await hands.claim() == []
        assert await named(hands, blocked.id) == [("push", ""), ("release", "")]

    @needs("atomic steps")
    async def test_times_limits_and_keys_are_told(self, hands: Hands) -> None:
        job = await hands.push(delay=2 * hands.tick, max_attempts=3, unique=Unique(key="k"))
        (push,) = await events_of(hands, job.id)
        assert push.extra["max_attempts"] == 3
        assert push.extra["unique"] == job.unique_digest
        assert abs(push.extra["run_at"] - push.extra["at"] - 2 * hands.tick) < hands.tick / 2
        await hands.pass_ticks(2.1)
        claim = await hands.take()
        told = (await events_of(hands, job.id))[-1].extra
        assert told["fence"] == claim.fence
        assert abs(told["lease_until"] - told["at"] - 3 * hands.tick) < hands.tick / 2

    @needs("batches", "chains")
    async def test_batches_and_chains_are_told(self, hands: Hands) -> None:
        batch_id, chain_id = new_id(), new_id()
        await store_of(hands).create(NewBatch(id=batch_id))
        member = hands.envelope(batch_id=batch_id)
        await store_of(hands).add(batch_id, [member], offset=0)
        record = BatchRecord(batch_id=batch_id, member=member.id, failed=False)
        await hands.finish(await hands.take(), Done(), record=record)
        pushed, done = [event.extra for event in await events_of(hands, member.id) if event.event != "claim"]
        assert (pushed["batch"], pushed["member"]) == (batch_id, member.id)
        assert (done["batch"], done["member"], bool(done["counted"])) == (batch_id, member.id, True)
        first = link(hands, chain_id, 0)
        await hands.adapter.push([first])
        (told,) = await events_of(hands, first.id)
        assert (told.extra["chain"], int(told.extra["index"])) == (chain_id, 0)
