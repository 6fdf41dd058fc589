"""Unique jobs: one active job per (name, key), as a slot until it ends or as a lock for a time."""

from __future__ import annotations

import asyncio

from nimbusq.driver import Cancelled, Claim, Done, Failed, Pushed, PutBack, Retry
from nimbusq.envelope import Unique, digest
from nimbusq.testing.suite.hands import Hands
from nimbusq.testing.suite.needs import needs

SLOT = Unique(key="account:42")


async def refused_for(hands: Hands, unique: Unique = SLOT, **fields: object) -> str | None:
    """The holder that a push of that key is told, or None where it was stored."""
    envelope = hands.envelope(unique=unique, **fields)
    (pushed,) = await hands.adapter.push([envelope])
    assert pushed.id == envelope.id
    return pushed.holder


class UniqueSuite:
    @needs("unique jobs")
    async def test_a_second_job_of_the_key_is_refused_with_the_holders_id(self, hands: Hands) -> None:
        holder = await hands.push(unique=SLOT)
        assert await refused_for(hands) == holder.id
        assert await refused_for(await hands.other()) == holder.id
        assert await hands.counts() == (1, 0, 0)

    @needs("unique jobs")
    async def test_the_key_is_held_in_every_active_state(self, hands: Hands) -> None:
        holder = await hands.push(unique=SLOT, delay=hands.tick)
        assert await refused_for(hands) == holder.id, "delayed"
        await hands.pass_ticks(1.1)
        assert await refused_for(hands) == holder.id, "ready"
        claim = await hands.take()
        assert await refused_for(hands) == holder.id, "running"
        await hands.finish(claim, Retry(hands.tick, "boom"))
        assert await refused_for(hands) == holder.id, "retrying"
        await hands.pass_ticks(1.1)
        await hands.finish(await hands.take(), PutBack(0))
        assert await refused_for(hands) == holder.id, "released"

    @needs("unique jobs")
    async def test_every_end_frees_the_key(self, hands: Hands) -> None:
        for outcome in (Done(), Failed("boom"), Cancelled("no")):
            holder = await hands.push(unique=SLOT)
            await hands.finish(await hands.take(), outcome)
            following = await hands.push(unique=SLOT)
            assert following.id != holder.id
            await hands.finish(await hands.take())

    @needs("unique jobs", "timed leases")
    async def test_a_lost_run_keeps_the_key_and_its_end_frees_it(self, hands: Hands) -> None:
        """B11, B33: the key lives exactly as long as the job, whatever happens to its workers."""
        holder = await hands.push(unique=SLOT, max_attempts=2)
        await hands.take()
        await hands.pass_ticks(3.1)
        await hands.take()
        assert await refused_for(hands) == holder.id
        await hands.pass_ticks(3.1)
        ending = await hands.take_ending()
        assert await refused_for(hands) == holder.id, "not before its end is settled"
        await hands.fail(ending)
        assert await refused_for(hands) is None

    @needs("unique jobs", "timed leases")
    async def test_a_loser_cannot_free_the_key(self, hands: Hands) -> None:
        holder = await hands.push(unique=SLOT)
        loser = await hands.take()
        await hands.pass_ticks(3.1)
        await hands.take()
        await hands.settle(loser)
        assert await refused_for(hands) == holder.id

    @needs("unique jobs")
    async def test_the_same_key_of_another_job_name_is_free(self, hands: Hands) -> None:
        await hands.push(unique=Unique(key="b:c"), name="a")
        assert await refused_for(hands, Unique(key="c"), name="a.b") is None
        assert await refused_for(hands, Unique(key="b:c"), name="Other") is None
        assert await refused_for(hands, Unique(key="B:C"), name="a") is None

    @needs("unique jobs")
    async def test_the_key_binds_over_all_queues(self, hands: Hands) -> None:
        holder = await hands.push(unique=SLOT)
        assert await refused_for(hands, queue="elsewhere") == holder.id

    @needs("unique jobs")
    async def test_the_holder_pushed_again_is_no_conflict_with_itself(self, hands: Hands) -> None:
        holder = await hands.push(unique=SLOT)
        assert list(await hands.adapter.push([holder])) == [Pushed(holder.id)]

    @needs("unique jobs")
    async def test_one_call_stores_the_first_of_a_key_and_all_others(self, hands: Hands) -> None:
        first, second = hands.envelope(unique=SLOT), hands.envelope(unique=SLOT)
        plain = hands.envelope()
        answers = await hands.adapter.push([first, second, plain])
        assert list(answers) == [Pushed(first.id), Pushed(second.id, first.id), Pushed(plain.id)]
        assert await hands.counts() == (2, 0, 0)

    @needs("unique jobs")
    async def test_of_many_concurrent_pushes_one_wins(self, hands: Hands) -> None:
        sides = [hands, await hands.other()]
        answers = await asyncio.gather(*(refused_for(sides[n % 2]) for n in range(30)))
        assert answers.count(None) == 1
        (winner,) = set(answers) - {None}
        assert (await hands.take()).id == winner

    @needs("unique jobs", "jobs")
    async def test_unique_holder_tells_the_slots_holder(self, hands: Hands) -> None:
        jobs = hands.adapter.stores.jobs
        assert jobs
        assert await jobs.unique_holder("Probe", SLOT.key) is None
        holder = await hands.push(unique=SLOT)
        assert await jobs.unique_holder("Probe", SLOT.key) == holder.id
        await hands.finish(await hands.take())
        assert await jobs.unique_holder("Probe", SLOT.key) is None


def lock(hands: Hands, ticks: float = 2) -> Unique:
    return Unique(key="account:42", mode="lock", ttl=ticks * hands.tick)


async def take_locked(hands: Hands) -> Claim:
    await hands.push(unique=lock(hands))
    return await hands.take()


class UniqueLockSuite:
    @needs("unique jobs")
    async def test_a_lock_is_held_until_its_time_is_over(self, hands: Hands) -> None:
        holder = await hands.push(unique=lock(hands), delay=9 * hands.tick)
        assert await refused_for(hands, lock(hands)) == holder.id
        await hands.pass_ticks(2.1)
        assert await refused_for(hands, lock(hands)) is None, "although its job still waits"

    @needs("unique jobs")
    async def test_a_lock_is_freed_by_the_end_and_kept_by_a_retry(self, hands: Hands) -> None:
        claim = await take_locked(hands)
        await hands.finish(claim, Retry(0, "boom"))
        assert await refused_for(hands, lock(hands)) == claim.id
        await hands.finish(await hands.take())
        assert await refused_for(hands, lock(hands)) is None

    @needs("unique jobs")
    async def test_an_end_frees_only_its_own_lock(self, hands: Hands) -> None:
        late = await take_locked(hands)
        await hands.pass_ticks(2.1)
        holder = await hands.push(unique=lock(hands))
        await hands.finish(late)
        assert await refused_for(hands, lock(hands)) == holder.id

    @needs("unique jobs")
    async def test_slot_and_lock_never_see_each_other(self, hands: Hands) -> None:
        await hands.push(unique=SLOT)
        assert await refused_for(hands, lock(hands)) is None
        assert await refused_for(hands, SLOT) is not None

    @needs("unique jobs", "locker", "jobs")
    async def test_the_lock_is_one_of_the_lockers(self, hands: Hands) -> None:
        locker, jobs = hands.adapter.stores.locker, hands.adapter.stores.jobs
        assert locker
        assert jobs
        key = "unique:" + digest("Probe", "account:42")
        assert await locker.holder(key) is None
        claim = await take_locked(hands)
        assert await locker.holder(key) == claim.id
        assert await locker.acquire(key, hands.tick) is None
        assert await jobs.unique_holder("Probe", "account:42") is None, "a lock is no slot"
        assert await locker.force_release(key) is True
        assert await refused_for(hands, lock(hands)) is None

    @needs("unique jobs", "locker")
    async def test_a_lock_taken_by_hand_refuses_the_job(self, hands: Hands) -> None:
        locker = hands.adapter.stores.locker
        assert locker
        token = await locker.acquire("unique:" + digest("Probe", "account:42"), 2 * hands.tick)
        assert token is not None
        assert await refused_for(hands, lock(hands)) == token
