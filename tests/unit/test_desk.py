"""What the pytest plugin gives to an application's tests."""

from __future__ import annotations

import pytest

from nimbusq import Job, Release, current_job, dispatch, job
from nimbusq.testing import Desk

ran: list[object] = []


class Welcome(Job, name="desk.Welcome", queue="mail"):
    user: int

    async def handle(self) -> None:
        ran.append(self.user)
        await dispatch(remind, self.user, days=3).delay(3 * 86_400).send()


@job(name="desk.remind")
async def remind(user: int, days: int) -> None:
    ran.append((user, days))


@job(name="desk.flaky", retries=1, backoff=60)
async def flaky() -> None:
    ran.append(current_job().attempt)
    raise ValueError("no")


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def test_what_is_sent_stays_and_can_be_looked_at(nimbusq_desk: Desk) -> None:
    nimbusq_desk.assert_nothing_sent()
    await dispatch(Welcome(user=1)).send()
    await dispatch(Welcome(user=2)).send()
    assert nimbusq_desk.sent() == [Welcome(user=1), Welcome(user=2)]
    assert nimbusq_desk.sent(Welcome, user=2) == [Welcome(user=2)]
    nimbusq_desk.assert_sent(Welcome, times=2)
    nimbusq_desk.assert_sent(Welcome, times=1, user=2)
    with pytest.raises(AssertionError, match="sent 0 times"):
        nimbusq_desk.assert_sent(Welcome, user=3)
    with pytest.raises(AssertionError, match="these were sent"):
        nimbusq_desk.assert_nothing_sent()
    assert ran == []


async def test_draining_runs_what_is_due_and_time_makes_the_rest_due(nimbusq_desk: Desk) -> None:
    await dispatch(Welcome(user=1)).send()
    assert await nimbusq_desk.drain() == 1
    assert ran == [1]
    nimbusq_desk.assert_sent(remind, user=1, days=3)
    assert await nimbusq_desk.drain() == 0
    await nimbusq_desk.advance(3 * 86_400)
    assert await nimbusq_desk.drain() == 1
    assert ran == [1, (1, 3)]


async def test_retries_wait_for_their_back_off_and_failures_can_be_read(nimbusq_desk: Desk) -> None:
    await dispatch(flaky).send()
    assert await nimbusq_desk.drain() == 1
    assert await nimbusq_desk.failed() == []
    await nimbusq_desk.advance(60)
    assert await nimbusq_desk.drain() == 1
    (record,) = await nimbusq_desk.failed()
    assert (record.error, record.attempts) == ("ValueError: no", 2)
    assert ran == [1, 2]


async def test_a_desk_of_its_own_is_the_current_manager_inside() -> None:
    @job
    async def again() -> None:
        if current_job().releases == 0:
            raise Release(5)

    async with Desk() as desk:
        await dispatch(again).send()
        assert await desk.drain() == 1
        await desk.advance(5)
        assert await desk.drain() == 1
