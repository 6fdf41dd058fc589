"""Retry and release: the job keeps its identity; an attempt is counted for a failure only."""

from __future__ import annotations

from nimbusq.driver import PutBack, Retry
from nimbusq.testing.suite.hands import Hands
from nimbusq.testing.suite.needs import needs


class PutBackSuite:
    async def test_a_retry_is_due_after_its_delay_and_counted(self, hands: Hands) -> None:
        sent = await hands.push()
        await hands.finish(await hands.take(), Retry(2 * hands.tick, "boom"))
        assert await hands.counts() in {(0, 1, 0), (None, None, None)}
        await hands.pass_ticks(0.5)  # a claim may wait for nearly another tick
        assert await hands.claim() == []
        await hands.pass_ticks(1.6)
        claim = await hands.take()
        assert (claim.id, claim.attempt, claim.releases, claim.reclaimed) == (sent.id, 2, 0, False)
        assert claim.envelope == sent

    async def test_a_release_gives_the_attempt_back_and_counts_itself(self, hands: Hands) -> None:
        sent = await hands.push()
        for releases in range(3):
            claim = await hands.take()
            assert (claim.id, claim.attempt, claim.releases) == (sent.id, 1, releases)
            await hands.finish(claim, PutBack(0))
        await hands.finish(await hands.take(), PutBack(hands.tick))
        assert await hands.claim() == []
        await hands.pass_ticks(1.1)
        claim = await hands.take()
        assert (claim.attempt, claim.releases) == (1, 4)

    async def test_handing_back_unrun_counts_nothing(self, hands: Hands) -> None:
        sent = await hands.push()
        for _ in range(3):
            await hands.finish(await hands.take(), PutBack(0, counted=False))
        claim = await hands.take()
        assert (claim.id, claim.attempt, claim.releases) == (sent.id, 1, 0)

    @needs("atomic steps")
    async def test_releases_do_not_use_up_the_attempts(self, hands: Hands) -> None:
        """B36: fifty releases, then a failure, then a success."""
        await hands.push(max_attempts=2)
        for _ in range(50):
            await hands.finish(await hands.take(), PutBack(0))
        claim = await hands.take()
        assert (claim.attempt, claim.releases) == (1, 50)
        await hands.finish(claim, Retry(0, "boom"))
        claim = await hands.take()
        assert (claim.attempt, claim.releases) == (2, 50)
        await hands.finish(claim)
        assert await hands.is_idle()

    async def test_a_retry_keeps_the_priority(self, hands: Hands) -> None:
        if not hands.adapter.capabilities.priorities:
            return
        urgent = await hands.push(priority=1)
        await hands.finish(await hands.take(), Retry(hands.tick, "boom"))
        await hands.push(priority=2)
        await hands.pass_ticks(1.1)
        assert (await hands.take(limit=1)).id == urgent.id

    @needs("atomic steps", "jobs")
    async def test_the_last_error_is_shown_while_the_job_waits(self, hands: Hands) -> None:
        jobs = hands.adapter.stores.jobs
        assert jobs
        sent = await hands.push()
        await hands.finish(await hands.take(), Retry(hands.tick, "boom: 42"))
        view = await jobs.get(sent.id)
        assert view
        assert (view.state, view.attempt, view.error) == ("delayed", 1, "boom: 42")

    @needs("atomic steps")
    async def test_what_follows_a_retry_is_pushed_too(self, hands: Hands) -> None:
        await hands.push()
        follow = hands.envelope()
        await hands.finish(await hands.take(), Retry(hands.tick, "boom"), push=(follow,))
        assert (await hands.take()).id == follow.id
