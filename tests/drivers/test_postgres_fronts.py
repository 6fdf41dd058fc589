"""Claims of a backlog on PostgreSQL, which begin behind what has left: they are quick, and pass nothing over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from nimbusq.driver import Claim, Done, Lane, PutBack, Renewal, Settlement, SettleStatus, Want
from nimbusq.envelope import Envelope
from nimbusq.ids import new_id
from nimbusq_database.fronts import Fronts
from tests.drivers.database_env import DatabaseEnv, database_env

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def env(postgres_url: str) -> AsyncIterator[DatabaseEnv]:
    async with database_env(postgres_url) as env:
        yield env


async def push(env: DatabaseEnv, count: int, *, queue: str = "mail", priority: int = 5) -> list[str]:
    jobs = [Envelope(id=new_id(), name="Send", queue=queue, priority=priority) for _ in range(count)]
    await env.adapter.push(jobs)
    return [job.id for job in jobs]


async def backlog(env: DatabaseEnv, count: int) -> None:
    """Jobs that have waited for a while."""
    await push(env, count)
    await env.advance(60)


def want(limit: int, *queues: str) -> Want:
    lanes = tuple(Lane(queue=queue, limit=limit) for queue in queues)
    return Want(token=new_id(), limit=limit, lease=30, lanes=lanes)


async def claim(env: DatabaseEnv, limit: int, *queues: str) -> list[Claim]:
    return list((await env.adapter.claim(want(limit, *queues or ("mail",)))).claims)


async def finish(env: DatabaseEnv, claims: list[Claim]) -> None:
    await env.adapter.settle([Settlement(claim=one, outcome=Done()) for one in claims])


async def test_a_claim_does_not_read_past_the_jobs_that_have_left(
    env: DatabaseEnv, postgres: asyncpg.Connection
) -> None:
    prefix = env.settings.prefix
    await postgres.execute(f"alter table {prefix}_jobs set (autovacuum_enabled = off)")
    await backlog(env, 12_000)
    for _ in range(20):
        await finish(env, await claim(env, 500))
    env.adapter._fronts = Fronts(lambda: 0.0)  # no whole look but the first
    before = await _pages_read(env, postgres)
    for _ in range(30):
        assert len(await claim(env, 10)) == 10
    assert (await _pages_read(env, postgres) - before) / 30 < 25, (
        "10,000 jobs have left about 90 pages of entries"
    )


async def _pages_read(env: DatabaseEnv, postgres: asyncpg.Connection) -> int:
    """Of the index of due jobs, once they are told of: a session does that at most once a second."""
    read = "select idx_blks_hit + idx_blks_read from pg_statio_user_indexes where indexrelname = $1"
    last = -1
    async with asyncio.timeout(30):
        while (count := await postgres.fetchval(read, f"{env.settings.prefix}_jobs_due")) != last:
            last = count
            await asyncio.sleep(1.2)
            await env.adapter.stores.jobs.paused_queues()
    return last


async def test_an_older_job_that_turns_up_in_a_backlog_is_found_all_the_same(
    env: DatabaseEnv, postgres: asyncpg.Connection
) -> None:
    """As when the application's transaction was open for long."""
    await backlog(env, 5_000)
    await finish(env, await claim(env, 10))
    (late,) = await push(env, 1)
    await postgres.execute(f"update {env.settings.prefix}_jobs set run_at = 1 where id = $1", late)
    async with asyncio.timeout(5):
        while late not in [one.id for one in await claim(env, 5)]:
            pass
    (depth,) = await env.adapter.depth(["mail"])
    assert depth.pending > 0, "the backlog was still there"


async def test_an_older_job_is_found_at_once_when_the_backlog_ends(
    env: DatabaseEnv, postgres: asyncpg.Connection
) -> None:
    await backlog(env, 20)
    await claim(env, 10)
    (late,) = await push(env, 1)
    await postgres.execute(f"update {env.settings.prefix}_jobs set run_at = 1 where id = $1", late)
    found = [*await claim(env, 10), *await claim(env, 10)]
    assert late in {one.id for one in found}
    assert len(found) == 11, "neither of them came back empty while a job was due"


async def test_a_claim_is_never_empty_while_a_job_is_due(env: DatabaseEnv) -> None:
    """Behind the front of a queue that was paused, when it is resumed."""
    paused = await push(env, 3, queue="paused")
    await backlog(env, 1)
    await env.adapter.stores.jobs.pause_queue("paused")
    assert len(await claim(env, 1, "paused", "mail")) == 1
    await env.adapter.stores.jobs.resume_queue("paused")
    assert [one.id for one in await claim(env, 3, "paused", "mail")] == paused


async def test_a_claim_that_finds_nothing_behind_its_front_looks_again_with_one_statement(
    env: DatabaseEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of one slot comes by here after each job, and must not go the longer way for it."""
    await backlog(env, 1)
    assert len(await claim(env, 1)) == 1

    async def judged(*_: object) -> None:
        pytest.fail("the longer way")

    monkeypatch.setattr("nimbusq_database.claim.claim", judged)
    assert await claim(env, 1) == []


async def test_an_empty_token_holds_nothing(env: DatabaseEnv) -> None:
    (job,) = await push(env, 1)
    forged = Claim(
        id=job, queue="mail", envelope=Envelope(id=job, name="Send", queue="mail"), attempt=1, token=""
    )
    assert await env.adapter.extend([forged], lease=30) == [Renewal.LOST]
    for outcome in (Done(), Done(b"1"), PutBack(0.0)):
        (settled,) = await env.adapter.settle([Settlement(claim=forged, outcome=outcome)])
        assert settled.status is SettleStatus.LOST
    assert [one.attempt for one in await claim(env, 1)] == [1]


async def test_urgent_jobs_still_come_first(env: DatabaseEnv) -> None:
    await backlog(env, 100)
    await claim(env, 10)
    urgent = await push(env, 3, priority=1)
    assert [one.id for one in await claim(env, 10)][:3] == urgent


async def test_an_earlier_queue_still_comes_first(env: DatabaseEnv) -> None:
    await backlog(env, 100)
    await claim(env, 10, "vip", "mail")
    first = await push(env, 3, queue="vip")
    assert [one.id for one in await claim(env, 10, "vip", "mail")][:3] == first


async def test_lost_jobs_are_taken_back_beside_a_backlog(env: DatabaseEnv) -> None:
    """Their leases end after the last look."""
    env.adapter._fronts = Fronts(lambda: 0.0)  # no whole look but the first
    await backlog(env, 100)
    lost = [*await claim(env, 10), *await claim(env, 10)]
    await env.advance(31)
    claimed = await env.adapter.claim(want(10, "mail"))
    assert {one.id for one in claimed.lost} == {one.id for one in lost}
    assert len(claimed.claims) == 10
