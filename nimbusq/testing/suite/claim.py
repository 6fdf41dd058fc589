"""Claim: who gets a job, how many, and the same answer to the same call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from nimbusq.driver import Claim, Lane
from nimbusq.testing.suite.hands import Hands, ids, new_id, queue_only
from nimbusq.testing.suite.needs import needs


class ClaimSuite:
    async def test_an_empty_queue_gives_nothing(self, hands: Hands) -> None:
        claimed = await hands.collect()
        assert (list(claimed.claims), list(claimed.lost), claimed.retry_after) == ([], [], None)

    async def test_a_claimed_job_is_running_and_nobody_elses(self, hands: Hands) -> None:
        await hands.push()
        await hands.take()
        assert await hands.counts() in {(0, 0, 1), (None, None, None)}
        assert await hands.claim() == []
        assert await (await hands.other()).claim() == []

    @needs("fencing")
    async def test_a_claim_carries_its_callers_token_and_a_first_fence(self, hands: Hands) -> None:
        await hands.push()
        mine = new_id()
        claim = await hands.take(token=mine)
        assert claim.token == mine
        assert claim.fence == 1

    async def test_at_most_the_limit(self, hands: Hands) -> None:
        await hands.push_many(5)
        assert len(await hands.claim(limit=2)) == 2
        assert len(await hands.claim(limit=10)) == 3

    async def test_at_most_the_limit_of_each_lane(self, hands: Hands) -> None:
        await hands.push_many(3, queue="a")
        await hands.push_many(3, queue="b")
        lanes = (Lane(queue="a", limit=1), Lane(queue="b", limit=2))
        claims = await hands.claim(limit=10, lanes=lanes)
        assert sorted(claim.queue for claim in claims) == ["a", "b", "b"]

    async def test_at_most_the_limit_of_the_only_lane(self, hands: Hands) -> None:
        await hands.push_many(3)
        assert len(await hands.claim(limit=10, lanes=queue_only(hands.queue, limit=2))) == 2
        assert len(await hands.claim()) == 1

    async def test_lanes_share_the_limit_in_their_order(self, hands: Hands) -> None:
        await hands.push_many(2, queue="a")
        await hands.push_many(2, queue="b")
        claims = await hands.claim(limit=3, lanes=queue_only("b", "a"))
        assert sorted(claim.queue for claim in claims) == ["a", "b", "b"]
        assert [claim.queue for claim in await hands.claim(lanes=queue_only("b", "a"))] == ["a"]

    async def test_a_lane_without_room_is_passed_over(self, hands: Hands) -> None:
        await hands.push(queue="a")
        there = await hands.push(queue="b")
        lanes = (Lane(queue="a", limit=0), Lane(queue="b", limit=5))
        assert ids(await hands.claim(lanes=lanes)) == [there.id]

    async def test_a_limit_of_nothing_takes_nothing(self, hands: Hands) -> None:
        await hands.push()
        assert await hands.claim(limit=0) == []
        assert len(await hands.claim()) == 1

    async def test_an_unknown_queue_is_empty(self, hands: Hands) -> None:
        assert await hands.claim(lanes=queue_only("never-seen")) == []

    @needs("atomic steps")
    async def test_the_same_call_again_answers_the_same_claims(self, hands: Hands) -> None:
        """Its reply may have been lost."""
        await hands.push_many(5)
        want = hands.want(limit=2)
        first = await hands.adapter.claim(want)
        again = await hands.adapter.claim(want)
        assert sorted(_held(again.claims)) == sorted(_held(first.claims))
        assert len(first.claims) == 2
        assert await hands.counts() == (3, 0, 2)

    @needs("atomic steps")
    async def test_the_same_call_again_after_a_part_was_settled(self, hands: Hands) -> None:
        await hands.push_many(3)
        want = hands.want(limit=2)
        first, second = (await hands.adapter.claim(want)).claims
        await hands.finish(first)
        assert ids(list((await hands.adapter.claim(want)).claims)) == [second.id]

    async def test_no_job_goes_to_two_of_many_claimers(self, hands: Hands) -> None:
        sent = await hands.push_many(40)
        sides = [hands, await hands.other()]
        wants = [sides[n % 2].claim(limit=3) for n in range(16)]
        claims = [claim for claims in await asyncio.gather(*wants) for claim in claims]
        claims += await hands.claim_all()
        assert sorted(ids(claims)) == sorted(ids(sent))

    async def test_run_at_and_waited_tell_of_the_time_in_the_queue(self, hands: Hands) -> None:
        await hands.push()
        await hands.pass_ticks(2)
        claim = await hands.take()
        assert claim.waited == pytest.approx(2 * hands.tick, abs=hands.tick / 2)
        assert claim.run_at > 1_000_000_000, "seconds since the epoch"


def _held(claims: Sequence[Claim]) -> list[tuple[str, str, int, int]]:
    return [(claim.id, claim.token, claim.attempt, claim.fence) for claim in claims]
