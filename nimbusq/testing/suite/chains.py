"""Chains: the next link is pushed by the step that ends the last one."""

from __future__ import annotations

from nimbusq.driver import Claim, Done, Retry, SettleStatus
from nimbusq.envelope import Callback, ChainRest, Envelope
from nimbusq.ids import derived_id
from nimbusq.testing.suite.hands import Hands, new_id
from nimbusq.testing.suite.needs import needs


def link(hands: Hands, chain_id: str, index: int) -> Envelope:
    return hands.envelope(
        id=derived_id(chain_id, index), chain=ChainRest(id=chain_id, index=index), body=f"{index}".encode()
    )


async def start(hands: Hands) -> tuple[str, Claim]:
    """A chain whose first link runs."""
    chain_id = new_id()
    await hands.adapter.push([link(hands, chain_id, 0)])
    return chain_id, await hands.take()


class ChainSuite:
    @needs("chains")
    async def test_links_run_one_after_the_other(self, hands: Hands) -> None:
        chain_id, claim = await start(hands)
        for index in range(1, 5):
            assert await hands.is_idle()
            following = link(hands, chain_id, index)
            await hands.finish(claim, push=(following,))
            claim = await hands.take()
            assert claim.envelope == following
        await hands.finish(claim)
        assert await hands.is_idle()

    @needs("chains", "timed leases")
    async def test_two_runs_of_a_link_push_the_next_one_once(self, hands: Hands) -> None:
        """B32: a run that was lost and one that won both come to their end."""
        chain_id, loser = await start(hands)
        await hands.pass_ticks(3.1)
        winner = await hands.take()
        following = link(hands, chain_id, 1)
        assert (await hands.settle(loser, push=(following,))).status is SettleStatus.LOST
        assert await hands.is_idle()
        await hands.finish(winner, push=(following,))
        assert (await hands.settle(winner, push=(following,))).status is not SettleStatus.SETTLED
        assert (await hands.take()).id == following.id
        assert await hands.is_idle()

    @needs("chains")
    async def test_a_failed_link_ends_the_chain_with_its_callback(self, hands: Hands) -> None:
        chain_id, claim = await start(hands)
        await hands.finish(claim, Retry(0, "boom"))
        claim = await hands.take()
        failure = hands.envelope(
            id=derived_id(chain_id, "on_failure"),
            callback=Callback(kind="on_failure", of=chain_id, job_id=claim.id, error="boom"),
        )
        await hands.fail(claim, push=(failure,))
        assert (await hands.take()).envelope == failure
        assert await hands.is_idle()

    @needs("chains", "failed")
    async def test_a_failed_link_that_is_retried_goes_on(self, hands: Hands) -> None:
        failed = hands.adapter.stores.failed
        assert failed
        chain_id, claim = await start(hands)
        await hands.fail(claim)
        await failed.retry(claim.id)
        again = await hands.take()
        assert again.envelope == claim.envelope
        following = link(hands, chain_id, 1)
        await hands.finish(again, Done(), push=(following,))
        assert (await hands.take()).id == following.id
