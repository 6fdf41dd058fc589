"""A worker's settlement and its next claim travel together, and neither pays for the other's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from nimbusq.driver import Claim, Claimed, Done, Lane, Settled, Settlement, SettleStatus, Want
from nimbusq.envelope import Envelope
from nimbusq.errors import StoreError, StoreUnavailable
from nimbusq_database.claim import Look
from nimbusq_database.joined import JoinedCalls

SETTLED = Settled(SettleStatus.SETTLED)


def want(limit: int = 10) -> Want:
    return Want(token="t", limit=limit, lease=30, lanes=(Lane(queue="mail", limit=limit),))


def settlements(count: int = 2) -> list[Settlement]:
    jobs = [Envelope(id=str(n), name="Send", queue="mail") for n in range(count)]
    claims = [Claim(id=job.id, queue="mail", envelope=job, attempt=1, token="t") for job in jobs]
    return [Settlement(claim=one, outcome=Done()) for one in claims]


@dataclass
class Store:
    """Writes down what is called. gate: calls end when it is open. trouble: raised by the joined call."""

    calls: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    trouble: Exception | None = None
    judged: bool = False

    def __post_init__(self) -> None:
        self.gate.set()
        self.joined = JoinedCalls(self.claim, self.settle, self.both)

    async def claim(self, want: Want) -> Look:
        self.calls.append(f"claim {want.limit}")
        await self.gate.wait()
        return Look(Claimed())

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        self.calls.append(f"settle {len(settlements)}")
        await self.gate.wait()
        return [SETTLED] * len(settlements)

    async def both(
        self, settlements: Sequence[Settlement], want: Want
    ) -> tuple[Sequence[Settled], Look | None]:
        self.calls.append(f"settle {len(settlements)} and claim {want.limit}")
        await self.gate.wait()
        if self.trouble:
            raise self.trouble
        return [SETTLED] * len(settlements), None if self.judged else Look(Claimed())


async def work(store: Store, *wants: Want, settlements: list[Settlement]) -> list[object]:
    """Claim as a claim loop does, again in the very step in which it is answered; settle during the first claim."""
    store.gate.clear()

    async def loop() -> Look:
        for one in wants:
            look = await store.joined.claim(one)
        return look

    claiming = asyncio.create_task(loop())
    await asyncio.sleep(0)
    settling = asyncio.create_task(store.joined.settle(settlements))
    await asyncio.sleep(0)
    store.gate.set()
    return list(await asyncio.gather(claiming, settling, return_exceptions=True))


async def test_a_settlement_that_comes_during_a_claim_goes_with_the_next_one() -> None:
    store = Store()
    look, settled = await work(store, want(3), want(5), settlements=settlements())
    assert store.calls == ["claim 3", "settle 2 and claim 5"]
    assert look == Look(Claimed())
    assert settled == [SETTLED] * 2


async def test_each_goes_by_itself_where_the_other_does_not_come() -> None:
    store = Store()
    await store.joined.settle(settlements())
    await store.joined.claim(want())
    assert store.calls == ["settle 2", "claim 10"]


async def test_a_settlement_does_not_wait_for_a_claim_that_does_not_follow() -> None:
    store = Store()
    _, settled = await work(store, want(), settlements=settlements())
    assert settled == [SETTLED] * 2
    assert store.calls == ["claim 10", "settle 2"]


async def test_a_settlement_that_comes_right_after_a_claim_waits_a_few_passes_for_the_next() -> None:
    """As long as jobs need to begin and end that wait for nothing."""
    store = Store()
    await store.joined.claim(want(3))
    settling = asyncio.create_task(store.joined.settle(settlements()))
    await asyncio.sleep(0)
    await asyncio.gather(store.joined.claim(want(5)), settling)
    assert store.calls == ["claim 3", "settle 2 and claim 5"]


async def test_a_settlement_that_comes_later_waits_for_nothing() -> None:
    store = Store()
    await store.joined.claim(want(3))
    for _ in range(4):
        await asyncio.sleep(0)
    settling = asyncio.create_task(store.joined.settle(settlements()))
    await asyncio.sleep(0)
    assert store.calls == ["claim 3", "settle 2"]
    await settling


async def test_what_is_large_goes_side_by_side() -> None:
    store = Store()
    await work(store, want(100), want(100), settlements=settlements())
    assert store.calls == ["claim 100", "settle 2", "claim 100"]
    store = Store()
    await work(store, want(), want(), settlements=settlements(100))
    assert store.calls == ["claim 10", "settle 100", "claim 10"]


async def test_a_claim_to_be_judged_goes_on_by_itself_and_the_settlement_is_done() -> None:
    store = Store(judged=True)
    _, settled = await work(store, want(3), want(5), settlements=settlements())
    assert settled == [SETTLED] * 2
    assert store.calls == ["claim 3", "settle 2 and claim 5", "claim 5"]


async def test_a_store_that_is_away_is_away_for_both() -> None:
    """Each repeats its own half, by its token."""
    store = Store(trouble=StoreUnavailable("gone"))
    answers = await work(store, want(3), want(5), settlements=settlements())
    assert [str(one) for one in answers] == ["gone", "gone"]
    assert answers[0] is not answers[1]
    assert store.calls == ["claim 3", "settle 2 and claim 5"]


async def test_the_trouble_of_one_is_not_the_others() -> None:
    """Whose it is, shows when each goes by itself."""
    store = Store(trouble=StoreError("refused"))
    claimed, settled = await work(store, want(3), want(5), settlements=settlements())
    assert claimed == Look(Claimed())
    assert settled == [SETTLED] * 2
    assert store.calls == ["claim 3", "settle 2 and claim 5", "claim 5", "settle 2"]


async def test_a_claim_that_fails_while_a_settlement_waits_for_it_leaves_that_to_go_alone() -> None:
    """As when the adapter is closed meanwhile."""
    store = Store()

    async def closed(_: Want) -> Look:
        await store.gate.wait()
        raise StoreUnavailable("not open")

    store.joined = JoinedCalls(closed, store.settle, store.both)
    claimed, settled = await work(store, want(3), settlements=settlements())
    assert str(claimed) == "not open"
    assert settled == [SETTLED] * 2
    assert store.calls == ["settle 2"]


async def joined_under_way(store: Store) -> tuple[asyncio.Task[Sequence[Settled]], asyncio.Task[Look]]:
    """A settlement and a claim in one statement, which is not answered before the gate opens."""
    await store.joined.claim(want(3))
    settling = asyncio.create_task(store.joined.settle(settlements()))
    await asyncio.sleep(0)
    store.gate.clear()
    claiming = asyncio.create_task(store.joined.claim(want(5)))
    await asyncio.sleep(0)
    return settling, claiming


async def test_a_claim_that_is_given_up_leaves_the_settlement_to_go_alone() -> None:
    store = Store()
    settling, claiming = await joined_under_way(store)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    store.gate.set()
    assert await settling == [SETTLED] * 2
    assert store.calls == ["claim 3", "settle 2 and claim 5", "settle 2"]


async def test_a_settlement_that_is_given_up_under_way_cuts_no_claim() -> None:
    store = Store()
    settling, claiming = await joined_under_way(store)
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    store.gate.set()
    assert await claiming == Look(Claimed())
    assert store.calls == ["claim 3", "settle 2 and claim 5"]


async def test_a_settlement_that_is_given_up_is_not_sent() -> None:
    store = Store()
    await store.joined.claim(want(3))
    settling = asyncio.create_task(store.joined.settle(settlements()))
    await asyncio.sleep(0)
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    await store.joined.claim(want(5))
    assert store.calls == ["claim 3", "claim 5"]
