"""Pushes in production mode on each database: jobs of one kind take a statement of their own there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nimbusq.driver import Claim, Done, DriverSettings, Ending, Lane, Settlement, Want
from nimbusq.envelope import Envelope, Unique
from nimbusq.ids import new_id
from nimbusq_database import DatabaseAdapter


def envelope(**options: Any) -> Envelope:
    return Envelope(id=new_id(), name="Send", queue="mail", **options)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[DatabaseAdapter]:
    """An adapter whose tables go with it."""
    settings = DriverSettings(prefix=f"p{new_id().replace('-', '')[-20:]}")
    adapter = DatabaseAdapter.from_url(url, settings)
    await adapter.setup([])
    await adapter.open()
    try:
        yield adapter
    finally:
        await adapter.migrations.down(0)
        await adapter.aclose()


async def claim(adapter: DatabaseAdapter, *, limit: int = 10, lease: float = 30.0) -> list[Claim]:
    lanes = (Lane(queue="mail", limit=limit),)
    want = Want(token=new_id(), limit=limit, lease=lease, lanes=lanes)
    return list((await adapter.claim(want)).claims)


class Pushes:
    """What holds on every database; its subclasses have the `adapter`."""

    async def test_a_repeated_push_stores_what_is_not_there(self, adapter: DatabaseAdapter) -> None:
        first = [envelope(priority=3) for _ in range(3)]
        more = [envelope(priority=3) for _ in range(2)]
        assert [pushed.id for pushed in await adapter.push(first)] == [one.id for one in first]
        pushed = await adapter.push([*more, *first])
        assert [(one.id, one.holder) for one in pushed] == [(one.id, None) for one in [*more, *first]]
        claims = await claim(adapter)
        assert [one.id for one in claims] == [one.id for one in [*first, *more]]
        assert [one.envelope for one in claims] == [*first, *more]

    async def test_a_large_push_may_be_a_repetition(self, adapter: DatabaseAdapter) -> None:
        """Large ones are expected to be new: of one that is not, what is not there is stored all the same."""
        first = [envelope() for _ in range(150)]
        more = [envelope() for _ in range(60)]
        assert [pushed.id for pushed in await adapter.push(first)] == [one.id for one in first]
        for repeated in ([*more[:30], *first, *more[30:]], first, [*more, more[0]] * 2):
            pushed = await adapter.push(repeated)
            assert [(one.id, one.holder) for one in pushed] == [(one.id, None) for one in repeated]
        claims = await claim(adapter, limit=400)
        assert [one.id for one in claims] == [one.id for one in [*first, *more]]
        assert [one.envelope for one in claims] == [*first, *more]

    async def test_a_body_of_any_bytes_comes_back(self, adapter: DatabaseAdapter) -> None:
        body = bytes(range(256)) * 40
        await adapter.push([envelope(body=body), envelope(body=b"")])
        claims = await claim(adapter)
        assert [one.envelope.body for one in claims if isinstance(one.envelope, Envelope)] == [body, b""]

    async def test_jobs_of_several_kinds_go_in_one_push(self, adapter: DatabaseAdapter) -> None:
        late = envelope(delay=60, max_attempts=1)
        urgent = envelope(priority=1, expires_in=90)
        keyed = envelope(unique=Unique(key="k"))
        pushed = await adapter.push([late, keyed, envelope(unique=Unique(key="k")), urgent])
        assert [one.holder for one in pushed] == [None, None, keyed.id, None]
        assert [one.id for one in await claim(adapter, limit=1)] == [urgent.id]
        (depth,) = await adapter.depth(["mail"])
        assert (depth.pending, depth.delayed) == (1, 1)

    async def test_jobs_of_one_kind_keep_what_they_share(self, adapter: DatabaseAdapter) -> None:
        await adapter.push([envelope(delay=60, priority=1) for _ in range(2)])
        await adapter.push([envelope(expires_in=0.0, priority=2) for _ in range(2)])
        await adapter.push([envelope(max_attempts=1, priority=3) for _ in range(2)])
        first = await claim(adapter, lease=0.01)
        assert Counter(one.ending for one in first) == {None: 2, Ending.EXPIRED: 2}
        await asyncio.sleep(0.05)  # their leases end
        second = await claim(adapter)
        assert Counter(one.ending for one in second) == {Ending.LOST: 2, Ending.EXPIRED: 2}
        (depth,) = await adapter.depth(["mail"])
        assert (depth.pending, depth.delayed) == (0, 2)

    async def test_pushes_at_once_share_transactions_and_lose_nothing(self, adapter: DatabaseAdapter) -> None:
        sent = [envelope() for _ in range(300)]
        answers = await asyncio.gather(*(adapter.push([one]) for one in sent))
        assert [answer[0].id for answer in answers] == [one.id for one in sent]
        claims = await claim(adapter, limit=400)
        assert {one.id for one in claims} == {one.id for one in sent}
        settled = await adapter.settle([Settlement(claim=one, outcome=Done()) for one in claims])
        assert {one.status.value for one in settled} == {"settled"}
        assert await claim(adapter) == []


class TestSqlite(Pushes):
    @pytest.fixture
    async def adapter(self, tmp_path: Path) -> AsyncIterator[DatabaseAdapter]:
        async with opened(f"sqlite:///{tmp_path}/jobs.db") as adapter:
            yield adapter


class TestPostgres(Pushes):
    @pytest.fixture
    async def adapter(self, postgres_url: str) -> AsyncIterator[DatabaseAdapter]:
        async with opened(postgres_url) as adapter:
            yield adapter


class TestMariadb(Pushes):
    @pytest.fixture
    async def adapter(self, mysql_url: str) -> AsyncIterator[DatabaseAdapter]:
        async with opened(mysql_url) as adapter:
            yield adapter
