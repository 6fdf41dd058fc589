"""How PostgreSQL finds its rows: by an index and linearly, whatever it believed of the tables when it planned."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import asyncpg
import pytest

from nimbusq.driver import DriverSettings
from nimbusq.ids import new_id
from nimbusq_database import DatabaseAdapter
from nimbusq_database.postgres.address import PostgresAddress
from nimbusq_database.postgres.dialect import PostgresDialect
from nimbusq_database.postgres.pool import connect
from nimbusq_database.statements import Statements, names

LARGE: Final = frozenset(
    {"jobs", "locks", "rates", "batches", "batch_members", "failed", "results", "history"}
)
"""Tables that may have a great many rows."""
READS_ALL: Final = frozenset(
    {
        "audit",
        "depth",
        "failed_count",
        "failed_forget_all",
        "failed_groups",
        "jobs_page",
        "prune_history",
        "prune_rates",
    }
)
"""Statements that read the whole of one of them: for people, for tests, or once in a while."""
SHORT: Final = ("claim_gate", "due", "next_due")
"""Statements that look at the first entry of an index."""

JOBS: Final = (
    "insert into {p}_jobs (id, wire, queue, name, priority, run_at, created_at, max_attempts) "
    "select gen_random_uuid()::text, 'x', 'mail', 'Send', 5, 1, 1, 4 from generate_series(1, {count})"
)
LEASE: Final = "update {p}_jobs set state = 'leased', token = left(id, 3), lease_until = 1, check_at = 1"
VACUUM: Final = tuple(f"vacuum analyze {{p}}_{table}" for table in sorted(LARGE))
STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "never looked at": (),
    "empty": VACUUM,
    "with three jobs": (JOBS.replace("{count}", "3"), LEASE, *VACUUM),
    "with many waiting": (JOBS.replace("{count}", "5000"), *VACUUM),
    "with many running": (JOBS.replace("{count}", "5000"), LEASE, *VACUUM),
}


@pytest.fixture(params=STATES)
async def connection(
    request: pytest.FixtureRequest, postgres_url: str, prefix: str
) -> AsyncIterator[asyncpg.Connection]:
    """As the driver's own, before tables in some state."""
    adapter = DatabaseAdapter.from_url(postgres_url, DriverSettings(prefix=prefix))
    await adapter.setup([])
    connection = await connect(PostgresAddress.from_url(postgres_url))
    for statement in STATES[request.param]:
        await connection.execute(statement.replace("{p}", prefix))
    yield connection
    await connection.close()
    async with adapter.migrations.connected() as migrations:
        await migrations.down(0)


@pytest.fixture
def prefix() -> str:
    return f"q{new_id().replace('-', '')[-20:]}"


async def test_no_statement_reads_a_large_table_or_compares_each_row_with_each(
    connection: asyncpg.Connection, prefix: str
) -> None:
    statements = Statements("postgres", prefix, PostgresDialect.spelling)
    wrong = dict[str, list[str]]()
    for name in names("postgres"):
        for part in statements.get(name):
            plan = await _generic_plan(connection, part.text)
            found = [] if name in READS_ALL else list(_wrong(plan, prefix, short=name in SHORT))
            wrong |= {name: found} if found else {}
    assert wrong == {}


def _wrong(node: Mapping[str, Any], prefix: str, *, short: bool) -> Iterator[str]:
    """The nodes that take longer than their rows deserve."""
    table = str(node.get("Relation Name", "")).removeprefix(f"{prefix}_")
    scans = "Scan" in node["Node Type"] and table in LARGE
    if scans and not node.keys() & {"Index Cond", "Recheck Cond", "TID Cond"} and not short:
        yield f"reads {table} from end to end"
    if "ANY" in node.get("Filter", ""):
        yield f"compares each row of {table} with a list: {node['Filter']}"
    if node["Node Type"] == "Nested Loop" and " = " in node.get("Join Filter", ""):
        yield f"compares each row with each: {node['Join Filter']}"
    for child in node.get("Plans", ()):
        yield from _wrong(child, prefix, short=short)


async def _generic_plan(connection: asyncpg.Connection, text: str) -> Mapping[str, Any]:
    prepared = await connection.prepare(text)
    types = [one.name for one in prepared.get_parameters()]
    await connection.execute(f"prepare planned{_listed(types)} as {text}")
    try:
        values = _listed([_value(one) for one in types])
        shown = await connection.fetchval(f"explain (format json) execute planned{values}")
    finally:
        await connection.execute("deallocate planned")
    plan: Mapping[str, Any] = json.loads(shown)[0]["Plan"]
    return plan


def _listed(words: list[str]) -> str:
    return f" ({', '.join(words)})" if words else ""


def _value(type_name: str) -> str:
    if type_name.endswith("[]"):
        return "'{}'"
    return {"text": "'x'", "jsonb": "'[]'", "bytea": "'x'"}.get(type_name, "1")


async def test_a_new_connection_is_ready_for_its_first_statement(postgres_url: str) -> None:
    """asyncpg asks for the types it does not know with a query that takes 50 ms without nested loops."""
    connection = await connect(PostgresAddress.from_url(postgres_url))
    asked = list[str]()
    connection.add_query_logger(lambda query: asked.append(query.query))
    await connection.fetch("select $1::int[], $2::bigint[], $3::float8[], $4::bytea[], $5::text[]", *[[]] * 5)
    assert await connection.fetchval("show enable_nestloop") == "off"
    await connection.close()
    assert [query.split()[0] for query in asked] == ["select", "show"], "nothing was looked up"


async def test_a_connection_that_does_not_become_ready_is_given_up_in_time(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself: the caller may have no limit any more, when the others are closed."""
    slow = "select pg_sleep(3), $1::text[], $2::text[], $3::text[], $4::text[]"
    monkeypatch.setattr("nimbusq_database.postgres.pool._READY", slow)
    monkeypatch.setattr("nimbusq_database.postgres.pool._PATIENCE", 0.2)
    monkeypatch.setattr("nimbusq_database.postgres.pool.connect_options", lambda _: {"dsn": postgres_url})
    with pytest.raises(TimeoutError):
        await connect(PostgresAddress.from_url(postgres_url))
