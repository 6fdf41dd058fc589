"""One SQLite file under bad conditions: held by others, full, cut in the middle of a transaction."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nimbusq.driver import Claim, Depth, Done, DriverSettings, HistoryRow, Lane, PutBack, Settlement, Want
from nimbusq.envelope import Envelope
from nimbusq.errors import StoreFull, StoreUnavailable
from nimbusq.ids import new_id
from nimbusq_database import DatabaseAdapter
from nimbusq_database.client import Client
from nimbusq_database.pruning import prune
from nimbusq_database.sqlite.thread import ConnectionThread


def envelope() -> Envelope:
    return Envelope(id=new_id(), name="Send", queue="mail")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
async def adapter(url: str) -> AsyncIterator[DatabaseAdapter]:
    adapter = DatabaseAdapter.from_url(url, DriverSettings())
    await adapter.open()
    yield adapter
    await adapter.aclose()


async def claim(adapter: DatabaseAdapter, *, wait: float = 0) -> list[Claim]:
    lanes = (Lane(queue="mail", limit=10),)
    want = Want(token=new_id(), limit=10, lease=30, wait=wait, lanes=lanes)
    return list((await adapter.claim(want)).claims)


async def depth(adapter: DatabaseAdapter) -> Depth:
    (depth,) = await adapter.depth(["mail"])
    return depth


async def test_a_file_that_is_held_for_a_moment_is_waited_for(
    adapter: DatabaseAdapter, tmp_path: Path
) -> None:
    holder = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None, check_same_thread=False)
    holder.execute("begin immediate")
    pushing = asyncio.create_task(adapter.push([envelope()]))
    await asyncio.sleep(0.05)
    assert not pushing.done()
    assert (await depth(adapter)).pending == 0, "readers are not held up"
    holder.execute("commit")
    holder.close()
    await pushing
    assert (await depth(adapter)).pending == 1


async def test_a_file_that_is_held_for_longer_is_unavailable(
    adapter: DatabaseAdapter, tmp_path: Path
) -> None:
    """A renewal's deadline is a sixth of its lease."""
    holder = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    holder.execute("begin immediate")
    running = Claim(id="x", queue="mail", envelope=envelope(), attempt=1, token="t")
    with pytest.raises(StoreUnavailable, match="held by another process"):
        await adapter.extend([running], lease=0.6)
    holder.close()
    await adapter.push([envelope()])


async def test_a_full_disk_stores_nothing(adapter: DatabaseAdapter) -> None:
    async def fill(client: Client) -> None:
        connection = client._connection  # type: ignore[attr-defined]  # the limit is a connection's own
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages + 2}")

    await adapter.push([envelope()])
    await adapter._database.dialect.run(fill, limit=5)
    with pytest.raises(StoreFull, match="no space is left"):
        await adapter.push([envelope() for _ in range(1000)])
    assert (await depth(adapter)).pending == 1


KILLED = """
import asyncio, os, signal, sys
from nimbusq.driver import DriverSettings, Done, Lane, Settlement, Want
from nimbusq_database import DatabaseAdapter
from nimbusq_database import sqlite

async def main():
    adapter = DatabaseAdapter.from_url(sys.argv[1], DriverSettings())
    await adapter.open()
    claimed = await adapter.claim(Want(token="t", limit=10, lease=30, lanes=(Lane(queue="mail", limit=10),)))

    async def body(tx):
        from nimbusq_database.settle import settle
        await settle(tx, [Settlement(claim=one, outcome=Done()) for one in claimed.claims])
        os.kill(os.getpid(), signal.SIGKILL)

    await adapter._database.transact(body)

asyncio.run(main())
"""


async def test_a_process_killed_before_its_commit_has_done_nothing(
    adapter: DatabaseAdapter, url: str
) -> None:
    """The claim was committed and stays; the settlement was not."""
    await adapter.push([envelope() for _ in range(3)])
    killed = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", KILLED, url], timeout=30, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    found = await depth(adapter)
    assert (found.pending, found.running) == (0, 3)
    lanes = (Lane(queue="mail", limit=10),)
    again = await adapter.claim(Want(token="t", limit=10, lease=30, lanes=lanes))
    settled = await adapter.settle([Settlement(claim=one, outcome=Done()) for one in again.claims])
    assert [one.status.value for one in settled] == ["settled"] * 3


OPENED = """
import asyncio, sys
from nimbusq.driver import DriverSettings
from nimbusq.envelope import Envelope
from nimbusq.ids import new_id
from nimbusq_database import DatabaseAdapter

async def main():
    adapter = DatabaseAdapter.from_url(sys.argv[1], DriverSettings())
    await adapter.open()
    await adapter.push([Envelope(id=new_id(), name="Send", queue="mail")])

asyncio.run(main())  # ends without aclose(): its threads must not keep it
"""


async def test_twelve_processes_open_one_new_file(url: str) -> None:
    started = [await asyncio.create_subprocess_exec(sys.executable, "-c", OPENED, url) for _ in range(12)]
    assert [await process.wait() for process in started] == [0] * 12
    adapter = DatabaseAdapter.from_url(url, DriverSettings())
    await adapter.open()
    assert (await depth(adapter)).pending == 12
    await adapter.aclose()


async def test_another_connections_commit_wakes_a_waiting_claim(adapter: DatabaseAdapter, url: str) -> None:
    other = DatabaseAdapter.from_url(url, DriverSettings())
    await other.open()
    waiting = asyncio.create_task(claim(adapter, wait=30))
    await asyncio.sleep(0.02)
    sent = envelope()
    await other.push([sent])
    async with asyncio.timeout(1):
        (found,) = await waiting
    assert found.id == sent.id
    await other.aclose()


async def test_a_cancelled_claim_hands_back_what_it_took(adapter: DatabaseAdapter) -> None:
    """However late the cancel comes, the job is due again and no attempt is counted."""
    await adapter.push([envelope()])
    for turns in range(12):
        task = asyncio.create_task(claim(adapter, wait=30))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(answer, list):  # it was quicker
            back = PutBack(0, counted=False)
            await adapter.settle([Settlement(claim=one, outcome=back) for one in answer])
        assert (await depth(adapter)).running == 0
    (found,) = await claim(adapter)
    assert (found.attempt, found.releases) == (1, 0)


async def test_a_task_that_nobody_waits_for_is_not_begun(tmp_path: Path) -> None:
    thread = ConnectionThread("test", lambda: sqlite3.connect(tmp_path / "x.db"))
    gate, ran = threading.Event(), list[str]()
    first = asyncio.create_task(thread.run(lambda _: gate.wait(5)))
    second = asyncio.create_task(thread.run(lambda _: ran.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await first
    await thread.close()
    assert ran == []


async def test_a_database_that_was_closed_says_so(url: str) -> None:
    adapter = DatabaseAdapter.from_url(url, DriverSettings())
    await adapter.open()
    await adapter.aclose()
    with pytest.raises(StoreUnavailable, match="is not open"):
        await adapter.push([envelope()])
    await adapter.open()
    await adapter.push([envelope()])
    await adapter.aclose()


async def test_a_folder_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    adapter = DatabaseAdapter.from_url(f"sqlite:///{tmp_path}/no/jobs.db", DriverSettings())
    with pytest.raises(StoreUnavailable):
        await adapter.open()


async def test_old_records_are_dropped_in_passing(url: str) -> None:
    settings = DriverSettings(testing=True, history_limit=3)
    adapter = DatabaseAdapter.from_url(url, settings)
    await adapter.open()
    rows = [HistoryRow(id=str(n), queue="mail", name="Send", state="done", attempt=1) for n in range(10)]
    assert adapter.stores.history
    assert adapter.stores.locker
    await adapter.stores.history.push(rows)
    await adapter.stores.history.keep_result("1", b"x", 5)
    await adapter.advance(6)
    await adapter._database.transact(lambda tx: prune(tx, settings))
    kept, _ = await adapter.stores.history.page()
    assert [row.id for row in kept] == ["9", "8", "7"]
    await adapter.aclose()
