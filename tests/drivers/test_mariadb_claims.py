"""What calls cost on MariaDB: round trips, and claims while InnoDB has not purged the jobs before them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from nimbusq.driver import Claim, Done, DriverSettings, Lane, Settlement, Want
from nimbusq.envelope import Envelope
from nimbusq.errors import StoreError
from nimbusq.ids import new_id
from nimbusq_database import DatabaseAdapter
from nimbusq_database.client import Client
from nimbusq_database.mysql.client import MysqlClient
from nimbusq_database.mysql.dialect import MysqlDialect
from nimbusq_database.statements import Part
from tests.drivers.proxy import proxied

BEFORE = 2_000
"""Jobs that were claimed and settled before."""


def envelope(priority: int = 5) -> Envelope:
    return Envelope(id=new_id(), name="Send", queue="mail", priority=priority)


@pytest.fixture
async def adapter(mysql_url: str) -> AsyncIterator[DatabaseAdapter]:
    adapter = DatabaseAdapter.from_url(
        mysql_url, DriverSettings(prefix=f"c{new_id().replace('-', '')[-20:]}", history_limit=0)
    )
    await adapter.setup([])
    await adapter.open()
    yield adapter
    await adapter.migrations.down(0)
    await adapter.aclose()


@asynccontextmanager
async def no_purge(adapter: DatabaseAdapter) -> AsyncIterator[None]:
    """A reader's snapshot, for which InnoDB keeps everything."""
    dialect = adapter._database.dialect
    assert isinstance(dialect, MysqlDialect)
    async with dialect._connections.one(float("inf")) as connection:
        client = MysqlClient(connection)
        await client.execute((Part("set transaction isolation level repeatable read", ()),), {})
        await client.execute((Part("start transaction with consistent snapshot", ()),), {})
        yield
        await connection.rollback()


async def page_reads(adapter: DatabaseAdapter) -> int:
    async def look(client: Client) -> int:
        text = "show global status where variable_name = 'Innodb_buffer_pool_read_requests'"
        (row,) = await client.fetch((Part(text, ()),), {})
        return int(row["Value"])

    return await adapter._database.dialect.read(look, limit=5)


async def claim(adapter: DatabaseAdapter, limit: int) -> list[Claim]:
    lanes = (Lane(queue="mail", limit=limit),)
    return list((await adapter.claim(Want(token=new_id(), limit=limit, lease=30, lanes=lanes))).claims)


async def settle(adapter: DatabaseAdapter, claims: list[Claim]) -> None:
    await adapter.settle([Settlement(claim=one, outcome=Done()) for one in claims])


async def test_a_claim_does_not_walk_over_what_is_not_purged_yet(adapter: DatabaseAdapter) -> None:
    """10 rows take some 150 reads of pages in memory; to step over each of the 2,000 under locks took 20,000."""
    await adapter.push([envelope() for _ in range(BEFORE)])
    waiting = [envelope() for _ in range(30)]
    await adapter.push(waiting)
    async with no_purge(adapter):
        await settle(adapter, await claim(adapter, BEFORE))
        costs, found = [], list[Claim]()
        for _ in range(3):  # others may use the server at the same time
            before = await page_reads(adapter)
            found += await claim(adapter, 10)
            costs.append(await page_reads(adapter) - before)
    assert [one.id for one in found] == [one.id for one in waiting]
    assert min(costs) < 2_000


async def test_a_transaction_begins_with_its_first_statement(
    adapter: DatabaseAdapter, mysql_url: str
) -> None:
    """A push is an insert and a commit; a claim a look, the jobs, their update and a commit; an end likewise."""
    parts = urlsplit(mysql_url)
    async with proxied(parts.hostname or "", parts.port or 3306) as proxy:
        other = DatabaseAdapter.from_url(proxy.leads_to(mysql_url), adapter._database.settings)
        await other.open()
        counted = []
        for call in (other.push([envelope()]), claim(other, 1)):
            before = proxy.requests
            answer = await call
            counted.append(proxy.requests - before)
        before = proxy.requests
        await settle(other, [one for one in answer if isinstance(one, Claim)])
        counted.append(proxy.requests - before)
        await other.aclose()
    assert counted == [2, 4, 3]


async def test_what_fails_in_its_first_statement_is_undone(adapter: DatabaseAdapter) -> None:
    """The connection is sound, and not in a transaction."""

    async def fails(client: Client) -> None:
        await client.execute((Part("select * from nothing_of_that_name", ()),), {})

    for _ in range(3):
        with pytest.raises(StoreError, match="nothing_of_that_name"):
            await adapter._database.dialect.transact(fails, limit=5)
    await adapter.push([envelope()])
    assert len(await claim(adapter, 10)) == 1


async def test_an_urgent_job_comes_first_while_others_wait(adapter: DatabaseAdapter) -> None:
    await adapter.push([envelope() for _ in range(3)])
    await claim(adapter, 1)
    urgent, late = envelope(priority=1), envelope(priority=10)
    await adapter.push([late])
    await adapter.push([urgent])
    found = await claim(adapter, 10)
    assert (found[0].id, found[-1].id, len(found)) == (urgent.id, late.id, 4)
    assert await claim(adapter, 10) == []
