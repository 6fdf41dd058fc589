"""What only PostgreSQL has: notifications, a pooler in front, deadlocks and renewals that its statistics show."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from nimbusq.driver import (
    BatchRecord,
    Cancelled,
    Claim,
    Done,
    DriverSettings,
    HistoryRow,
    Lane,
    NewBatch,
    PutBack,
    Settlement,
    SettleStatus,
    Want,
)
from nimbusq.envelope import Envelope, Overlap, Unique
from nimbusq.errors import DispatchUncertain, StoreUnavailable
from nimbusq.ids import new_id
from nimbusq_database import DatabaseAdapter
from nimbusq_database.failures import OutcomeUnknown
from nimbusq_database.postgres import doctor
from nimbusq_database.postgres.client import PostgresClient
from tests.drivers.database_env import database_env
from tests.drivers.proxy import proxied

pytestmark = pytest.mark.timeout(300)


def envelope(**options: Any) -> Envelope:
    return Envelope(id=new_id(), name="Send", queue="mail", **options)


@asynccontextmanager
async def opened(url: str, *, prefix: str) -> AsyncIterator[DatabaseAdapter]:
    """An adapter in production mode, whose plain calls are single statements."""
    adapter = DatabaseAdapter.from_url(url, DriverSettings(prefix=prefix))
    await adapter.setup([])
    await adapter.open()
    try:
        yield adapter
    finally:
        await adapter.aclose()


@pytest.fixture
async def prefix(postgres_url: str) -> AsyncIterator[str]:
    name = f"p{new_id().replace('-', '')[-20:]}"
    yield name
    async with opened(postgres_url, prefix=name) as adapter:
        await adapter.migrations.down(0)


@pytest.fixture
async def adapter(postgres_url: str, prefix: str) -> AsyncIterator[DatabaseAdapter]:
    async with opened(postgres_url, prefix=prefix) as adapter:
        yield adapter


async def claim(adapter: DatabaseAdapter, *, limit: int = 10, wait: float = 0) -> list[Claim]:
    want = Want(token=new_id(), limit=limit, lease=30, wait=wait, lanes=(Lane(queue="mail", limit=limit),))
    return list((await adapter.claim(want)).claims)


async def finish(adapter: DatabaseAdapter, claims: Sequence[Claim]) -> int:
    """Settle as a worker does; how many held."""
    settled = await adapter.settle([_done(one) for one in claims])
    return sum(one.status is SettleStatus.SETTLED for one in settled)


def _done(one: Claim) -> Settlement:
    assert isinstance(one.envelope, Envelope)
    batch = one.envelope.batch_id
    record = BatchRecord(batch_id=batch, member=one.id, failed=False) if batch else None
    history = HistoryRow(id=one.id, queue=one.queue, name="Send", state="done", attempt=1)
    return Settlement(claim=one, outcome=Done(), record=record, history=history)


async def delay_of(adapter: DatabaseAdapter, other: DatabaseAdapter) -> float:
    """Seconds from a push by `other` until a waiting claim has the job."""
    waiting = asyncio.create_task(claim(adapter, wait=20))
    await asyncio.sleep(0.2)
    began = time.perf_counter()
    await other.push([envelope()])
    await finish(adapter, await waiting)
    return time.perf_counter() - began


async def test_another_processs_push_is_heard(
    adapter: DatabaseAdapter, postgres_url: str, prefix: str
) -> None:
    async with opened(postgres_url, prefix=prefix) as other:
        await delay_of(adapter, other)  # connects the listener
        delays = sorted([await delay_of(adapter, other) for _ in range(5)])
    assert delays[2] < 0.2, "half of them or more did not wait for the poll"


async def test_a_push_tells_others_once(
    postgres: asyncpg.Connection, adapter: DatabaseAdapter, postgres_url: str, prefix: str
) -> None:
    """With its own commit, so that nothing is left for the adapter's notifier to send."""
    told = list[str]()
    await postgres.add_listener(f"{prefix}_jobs", lambda *heard: told.append(heard[-1]))
    async with opened(postgres_url, prefix=prefix) as other:
        await other.push([envelope()])
    await postgres.execute("select 1")
    assert told == ['["mail"]']


async def test_a_listener_that_died_is_replaced(
    adapter: DatabaseAdapter, postgres: asyncpg.Connection, postgres_url: str, prefix: str
) -> None:
    """Meanwhile jobs are found by polling, within a second."""
    async with opened(postgres_url, prefix=prefix) as other:
        await delay_of(adapter, other)
        killed = await postgres.fetch(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and query like 'select pg_notify(%' and application_name = 'nimbusq'"
        )
        assert killed
        assert await delay_of(adapter, other) < 3
        await asyncio.sleep(5.1)  # a lost listener is not replaced more often
        await delay_of(adapter, other)
        assert await delay_of(adapter, other) < 0.5


async def test_a_connection_cut_in_mid_push_leaves_the_outcome_open(
    adapter: DatabaseAdapter, postgres: asyncpg.Connection, prefix: str
) -> None:
    sent = envelope()
    blocker = postgres.transaction()
    await blocker.start()
    await postgres.execute(f"lock table {prefix}_jobs in access exclusive mode")
    pushing = asyncio.create_task(adapter.push([sent]))
    await _until(lambda: _waits_for_lock(postgres))
    await postgres.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and query like $1",
        f"%{prefix}_jobs%",
    )
    with pytest.raises(DispatchUncertain) as raised:
        await pushing
    assert raised.value.job_id == sent.id
    await blocker.rollback()


async def test_a_server_that_does_not_answer_is_given_up_in_time(
    adapter: DatabaseAdapter, postgres: asyncpg.Connection, prefix: str
) -> None:
    """A renewal waits for a sixth of its lease."""
    await adapter.push([envelope()])
    claims = await claim(adapter)
    blocker = postgres.transaction()
    await blocker.start()
    await postgres.execute(f"lock table {prefix}_jobs in access exclusive mode")
    began = time.perf_counter()
    with pytest.raises(StoreUnavailable, match="not answered in time"):
        await adapter.extend(claims, lease=3)
    assert time.perf_counter() - began < 2
    await blocker.rollback()
    assert await finish(adapter, claims) == 1


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the statements do that settle or claim."""
    statements: list[str] = []
    fetch = PostgresClient.fetch

    async def noted(self: PostgresClient, parts: Any, parameters: Any) -> Any:
        deletes, takes = "delete from" in parts[0].text, "skip locked" in parts[0].text
        if deletes or takes:
            statements.append(" and ".join(["settle"] * deletes + ["claim"] * takes))
        return await fetch(self, parts, parameters)

    monkeypatch.setattr(PostgresClient, "fetch", noted)
    return statements


async def join(
    adapter: DatabaseAdapter, want: Want, settlements: list[Settlement]
) -> tuple[list[Claim], list[SettleStatus]]:
    """Settle while a claim is under way, and claim again at once, as a busy worker does."""
    claimed, settled = await asyncio.gather(_claim_twice(adapter, want), adapter.settle(settlements))
    return claimed, [one.status for one in settled]


async def _claim_twice(adapter: DatabaseAdapter, want: Want) -> list[Claim]:
    await claim(adapter, limit=0)
    return list((await adapter.claim(want)).claims)


def wanted(limit: int) -> Want:
    return Want(token=new_id(), limit=limit, lease=30, lanes=(Lane(queue="mail", limit=limit),))


async def test_a_worker_settles_and_claims_in_one_statement(
    adapter: DatabaseAdapter, sent: list[str]
) -> None:
    await adapter.push([envelope() for _ in range(5)])
    first = await claim(adapter, limit=3)
    second, settled = await join(adapter, wanted(3), [_done(one) for one in first])
    assert len(second) == 2
    assert settled == [SettleStatus.SETTLED] * 3
    assert sent == ["claim", "claim", "settle and claim"]
    assert adapter.stores.history
    assert adapter.stores.jobs
    kept, _ = await adapter.stores.history.page()
    assert sorted(row.id for row in kept) == sorted(one.id for one in first)
    assert {(row.queue, row.name, row.state, row.attempt, row.tags) for row in kept} == {
        ("mail", "Send", "done", 1, ())
    }
    view = await adapter.stores.jobs.get(first[0].id)
    assert view
    assert view.state == "done"
    assert await finish(adapter, second) == 2


async def test_each_half_of_a_joined_call_is_fenced_by_its_own_token(adapter: DatabaseAdapter) -> None:
    """One settlement holds its job, one has lost it, one was put back by the same token before."""
    await adapter.push([envelope() for _ in range(4)])
    claims = await claim(adapter, limit=3)
    lost = claims[1]._replace(token="another")
    back = Settlement(claim=claims[2], outcome=PutBack(60.0))
    await adapter.settle([back])
    held = [_done(claims[0]), _done(lost), _done(claims[2])]
    more, settled = await join(adapter, wanted(10), held)
    assert settled == [SettleStatus.SETTLED, SettleStatus.LOST, SettleStatus.ALREADY]
    assert len(more) == 1, "the fourth; the second is held still, the third delayed"
    assert await finish(adapter, [claims[1]]) == 1


async def test_a_joined_claim_that_is_repeated_brings_the_same_jobs(
    adapter: DatabaseAdapter, sent: list[str]
) -> None:
    await adapter.push([envelope() for _ in range(6)])
    first = await claim(adapter, limit=2)
    want, ends = wanted(2), [_done(one) for one in first]
    claimed, settled = await join(adapter, want, ends)
    assert settled == [SettleStatus.SETTLED] * 2
    again = await adapter.claim(want)  # the reply was lost
    third, repeated = await join(adapter, want, ends)
    assert sent[:3] == ["claim", "claim", "settle and claim"]
    assert repeated == [SettleStatus.LOST] * 2, "they have left"
    assert {one.id for one in again.claims} == {one.id for one in claimed}
    assert {one.id for one in third} == {one.id for one in claimed}


async def test_a_reply_that_a_joined_call_has_lost_is_lost_to_both_halves(
    adapter: DatabaseAdapter, sent: list[str], postgres_url: str, prefix: str
) -> None:
    """Each is repeated by its own token, and both were done once."""
    await adapter.push([envelope() for _ in range(5)])
    parts = urlsplit(postgres_url)
    async with (
        proxied(parts.hostname or "", parts.port or 5432) as proxy,
        opened(proxy.leads_to(postgres_url), prefix=prefix) as other,
    ):
        ends, want = [_done(one) for one in await claim(other, limit=2)], wanted(2)
        proxy.lose_reply_to = want.token.encode()
        claimed, settled = await asyncio.gather(
            _claim_twice(other, want), other.settle(ends), return_exceptions=True
        )
        assert (type(claimed), type(settled), proxy.lost) == (OutcomeUnknown, OutcomeUnknown, 1)
        assert sent == ["claim", "claim", "settle and claim"]
        again = await other.claim(want)
        repeated = [one.status for one in await other.settle(ends)]
    assert repeated == [SettleStatus.LOST] * 2, "they have left"
    assert adapter.stores.history
    kept, _ = await adapter.stores.history.page()
    assert {row.id for row in kept} == {one.claim.id for one in ends}
    assert len(again.claims) == 2
    assert await finish(adapter, again.claims) == 2
    assert len(await claim(adapter)) == 1, "the fifth"


async def test_a_joined_claim_that_has_to_be_judged_takes_its_longer_way(
    adapter: DatabaseAdapter, sent: list[str]
) -> None:
    await adapter.push([envelope(), envelope(overlap=Overlap(key="k"))])
    first = await claim(adapter, limit=1)
    second, settled = await join(adapter, wanted(10), [_done(one) for one in first])
    assert len(second) == 1
    assert settled == [SettleStatus.SETTLED]
    assert sent[:4] == ["claim", "claim", "settle and claim", "claim"]


def test_an_adapter_that_is_opened_in_another_loop_waits_for_no_claim_of_the_last_one(
    postgres_url: str,
) -> None:
    prefix = f"p{new_id().replace('-', '')[-20:]}"
    adapter = DatabaseAdapter.from_url(postgres_url, DriverSettings(prefix=prefix))

    async def claim_when_closed() -> None:
        with pytest.raises(StoreUnavailable, match="not open"):
            await claim(adapter)

    async def open_and_settle() -> None:
        await adapter.setup([])
        await adapter.open()
        await adapter.push([envelope()])
        claims = await claim(adapter, wait=1)
        async with asyncio.timeout(5.0):
            assert await finish(adapter, claims) == 1
        await adapter.migrations.down(0)
        await adapter.aclose()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(claim_when_closed())
    loop.close()
    asyncio.run(open_and_settle())


async def test_what_is_seldom_told_of_an_end_is_kept(adapter: DatabaseAdapter) -> None:
    await adapter.push([envelope() for _ in range(3)])
    plain, marked, silent = await claim(adapter)
    told = HistoryRow(
        id=marked.id, queue="mail", name="Send", state="cancelled", attempt=1, waited=2.5, duration=0.25,
        error="no\0 more", worker="w", tags=("a", "b"), silenced=True,
    )  # fmt: skip
    plainly = told._replace(id=plain.id, state="done", error="", tags=(), silenced=False)
    kept = _done(plain)._replace(history=plainly)
    await adapter.settle(
        [kept, Settlement(claim=marked, outcome=Cancelled("no"), history=told),
         Settlement(claim=silent, outcome=Done())]
    )  # fmt: skip
    assert adapter.stores.history
    rows = {row.id: row for row in (await adapter.stores.history.page())[0]}
    assert set(rows) == {plain.id, marked.id}
    assert rows[marked.id]._replace(finished_at=0.0) == told._replace(error="no\\0 more")
    assert (rows[plain.id].state, rows[plain.id].tags, rows[plain.id].worker) == ("done", (), "w")


async def _waits_for_lock(postgres: asyncpg.Connection) -> bool:
    return bool(
        await postgres.fetchval("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")
    )


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():
            await asyncio.sleep(0.01)


async def test_workers_that_meet_never_deadlock(
    adapter: DatabaseAdapter, postgres: asyncpg.Connection, postgres_url: str, prefix: str
) -> None:
    """4 workers, unique and overlapping jobs, one batch row, renewals, and records pruned all the time."""
    database = urlsplit(postgres_url).path.removeprefix("/")
    deadlocks = "select deadlocks from pg_stat_database where datname = $1"
    before = await postgres.fetchval(deadlocks, database)
    assert adapter.stores.batches
    await adapter.stores.batches.create(NewBatch(id="b"))
    plain = [envelope(unique=Unique(key=str(n))) for n in range(1000)]
    keyed = [envelope(overlap=Overlap(key=str(n % 7), release_after=0.1)) for n in range(100)]
    await adapter.push(plain + keyed)
    members = [envelope(batch_id="b") for _ in range(1000)]
    await adapter.stores.batches.add("b", members, offset=0)
    await adapter.stores.batches.seal("b")
    finished = 0

    async def work() -> None:
        nonlocal finished
        async with opened(postgres_url, prefix=prefix) as mine:
            while finished < 2100:
                claims = await claim(mine, wait=0.2)
                await mine.extend(list(reversed(claims)), lease=30)
                held = await finish(mine, claims)
                finished += held
                mine._pruning.next_at = 0.1  # prune with every settlement

    async with asyncio.TaskGroup() as workers:
        for _ in range(4):
            workers.create_task(work())
    state = await adapter.stores.batches.find("b")
    assert finished == 2100
    assert state
    assert (state.pending, state.finished) == (0, True)
    await postgres.execute("select pg_stat_clear_snapshot()")
    assert await postgres.fetchval(deadlocks, database) == before


async def test_a_transaction_held_open_is_told_of(
    adapter: DatabaseAdapter,
    postgres: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the workers, once a minute, and by the doctor: no dead row can be removed meanwhile."""
    monkeypatch.setattr(doctor, "_LONG", 0)
    await adapter.push([envelope()])
    claims = await claim(adapter)
    adapter._pruning.next_at = 0.1
    async with postgres.transaction(isolation="repeatable_read"):
        await postgres.fetch("select 1")
        await finish(adapter, claims)
        findings = await adapter.doctor()
    assert "claims slow down: a transaction has been open for" in caplog.text
    assert [one.level for one in findings if "has been open for" in one.text] == ["warning"]


async def test_renewals_touch_no_index(
    adapter: DatabaseAdapter, postgres: asyncpg.Connection, prefix: str
) -> None:
    """Heap-only updates leave nothing behind in the indexes."""
    await adapter.push([envelope() for _ in range(200)])
    claims = await claim(adapter, limit=200)
    updates = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = $1"

    async def hot_after(count: int) -> int:
        """Once so many updates are told of: a session does that when it next works, at most once a second."""
        async with asyncio.timeout(30):
            while (row := await postgres.fetchrow(updates, f"{prefix}_jobs"))["n_tup_upd"] < count:
                await asyncio.sleep(0.2)
                await adapter.depth(["mail"])
        assert row["n_tup_upd"] == count
        return int(row["n_tup_hot_upd"])

    await adapter.extend(claims, lease=30)
    before = await hot_after(400)
    for _ in range(30):
        await adapter.extend(claims, lease=30)
    assert (await hot_after(6400) - before) / 6000 > 0.8


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@pytest.fixture
def pgbouncer(postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """The server behind PgBouncer in transaction mode, with two connections for everybody."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.fail("pgbouncer is missing: scripts/services install postgres")
    parts, port, settings = urlsplit(postgres_url), _free_port(), tmp_path / "pgbouncer.ini"
    password = f"password={parts.password}" if parts.password else ""
    settings.write_text(
        f"[databases]\n"
        f"shop = host={parts.hostname} port={parts.port} dbname={parts.path[1:]} user={parts.username} {password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n"
        f"pool_mode = transaction\ndefault_pool_size = 2\n"
    )
    as_whom = ["-u", "nobody"] if os.geteuid() == 0 else []  # it refuses to run as root
    command = [program, *as_whom, str(settings)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"postgresql://anybody@127.0.0.1:{port}/shop?statement_cache_size=0"
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    pytest.fail("pgbouncer did not start")


async def test_a_pooler_in_transaction_mode_may_stand_between(pgbouncer: str, prefix: str) -> None:
    """2 workers, 200 jobs, unique slots, overlap keys and a batch: each job once, and no statement goes astray."""
    finished = 0

    async def work() -> None:
        nonlocal finished
        async with opened(pgbouncer, prefix=prefix) as mine:
            while finished < 200:
                claims = await claim(mine, wait=0.2)
                await mine.extend(claims, lease=30)
                held = await finish(mine, claims)
                finished += held

    async with opened(pgbouncer, prefix=prefix) as adapter:
        assert adapter.stores.batches
        await adapter.stores.batches.create(NewBatch(id="b"))
        await adapter.push([envelope(unique=Unique(key=str(n))) for n in range(80)])
        await adapter.push([envelope(overlap=Overlap(key=str(n % 3), release_after=0.05)) for n in range(20)])
        await adapter.stores.batches.add("b", [envelope(batch_id="b") for _ in range(100)], offset=0)
        await adapter.stores.batches.seal("b")
        async with asyncio.TaskGroup() as workers:
            workers.create_task(work())
            workers.create_task(work())
        state = await adapter.stores.batches.find("b")
        findings = await adapter.doctor()
    assert finished == 200
    assert state
    assert state.finished
    assert any("no LISTEN" in finding.text for finding in findings)


@pytest.mark.parametrize("options", [{}, {"unique": Unique(key="k")}], ids=["plain", "with a key"])
async def test_the_audit_notes_no_later_time_for_a_push_than_is_stored(
    postgres_url: str, postgres: asyncpg.Connection, options: dict[str, Any]
) -> None:
    """Else a busy server seems to run jobs before they are due."""
    async with database_env(postgres_url) as env:
        await env.adapter.push([envelope(delay=5.0, **options)])
        (noted,) = [json.loads(extra)["run_at"] for *_, extra in await env.audit()]
        stored = await postgres.fetchval(f"select run_at from {env.settings.prefix}_jobs")
        assert stored - 1 < noted <= stored
