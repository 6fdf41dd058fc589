"""SQS or redis as the carrier with a store beside it, all of them real: what goes where, and one worker for both."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from nimbusq import (
    Batch,
    BatchState,
    Chain,
    DuplicateJob,
    Fail,
    JobFailed,
    Manager,
    Settings,
    UnsupportedByDriver,
    Worker,
    current_job,
    dispatch,
    dispatch_many,
    job,
)
from nimbusq.driver import DriverSettings
from nimbusq.loading import load_adapter
from nimbusq_sqs import SqsAdapter
from tests.drivers.kafka_env import drop as drop_kafka
from tests.drivers.redis_env import drop as drop_redis
from tests.drivers.sqs_env import drop, fresh_prefix, new_session


@dataclass
class Beside:
    """A manager of two drivers, and a worker on it when the test asks for one."""

    manager: Manager
    store: str

    async def work(self, done: Callable[[], Awaitable[bool]], patience: float = 20.0) -> Worker:
        """Let a worker run until it is done."""
        worker = Worker(self.manager, "default", concurrency=4, lease=3.0)
        task = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(patience):
                while not await done():
                    await asyncio.sleep(0.05)
        finally:
            worker.stop()
            await task
        return worker

    async def is_empty(self) -> bool:
        depth = await self.manager.depth()
        return not (depth.pending or depth.delayed or depth.running)

    async def held(self) -> list[int]:
        """Waiting jobs in the carrier and in the store."""
        depths = [(await adapter.depth(["default"]))[0] for adapter in self.manager.route.adapters]
        return [(depth.pending or 0) + (depth.delayed or 0) for depth in depths]


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else os.environ["REDIS_URL"]


@pytest.fixture
async def beside(sqs_endpoint: str, store_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Beside]:
    """By the environment alone, as a deployment has it."""
    prefix = fresh_prefix()
    for name, value in {
        "QUEUE_DRIVER": "sqs://us-east-1",
        "SQS_ENDPOINT_URL": sqs_endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "QUEUE_STORE_URL": store_url,
        "NIMBUSQ_PREFIX": prefix,
    }.items():
        monkeypatch.setenv(name, value)
    manager = Manager(settings=Settings())
    assert manager.store is not None
    for adapter in manager.route.adapters:
        await adapter.setup(["default"]) if adapter is manager.store else None
    try:
        async with manager:
            yield Beside(manager, manager.store.capabilities.driver)
    finally:
        settings = DriverSettings(prefix=prefix)
        await drop(SqsAdapter(session=new_session(), endpoint_url=sqs_endpoint, settings=settings), prefix)
        if store_url.startswith("redis"):
            store: Any = load_adapter(store_url, settings)
            await store.open()
            await drop_redis(store)
            await store.aclose()


@pytest.mark.sqs
class TestSqsBesideAStore:
    async def test_each_job_goes_where_it_can_be_kept(self, beside: Beside) -> None:
        ran: list[str] = []

        @job(name="beside-note")
        async def note(what: str) -> str:
            ran.append(what)
            return what.upper()

        plain = [
            await dispatch(note, what="plain").send(),
            await dispatch(note, what="soon").delay(1).send(),
        ]
        tied = [
            await dispatch(note, what="unique").unique("k").send(),
            await dispatch(note, what="lock").unique_for(60, key="k").send(),
            await dispatch(note, what="overlap").without_overlapping("k").send(),
            await dispatch(note, what="urgent").priority(1).send(),
        ]
        late = await dispatch(note, what="late").delay(1_800).send()
        assert {receipt.via for receipt in plain} == {"sqs"}
        assert {receipt.via for receipt in (*tied, late)} == {beside.store}
        assert await beside.held() == [2, 5]
        with pytest.raises(DuplicateJob):
            await dispatch(note, what="again").unique("k").send()

        async def all_but_late() -> bool:
            return len(ran) == 6

        worker = await beside.work(all_but_late)
        assert sorted(ran) == ["lock", "overlap", "plain", "soon", "unique", "urgent"]
        assert [await receipt.result(timeout=5) for receipt in (*plain, *tied)] == [
            "PLAIN",
            "SOON",
            "UNIQUE",
            "LOCK",
            "OVERLAP",
            "URGENT",
        ]
        assert worker.counters["default"]["processed"] == 6
        assert await late.cancel() is True
        assert await beside.is_empty()

    async def test_records_of_carried_jobs_are_in_the_store(self, beside: Beside) -> None:
        runs: list[int] = []

        @job(name="beside-fails", retries=1, backoff=0)
        async def fails() -> None:
            runs.append(current_job().attempt)
            raise ValueError("no such user")

        @job(name="beside-works")
        async def works() -> None: ...

        failing, working = await dispatch(fails).send(), await dispatch(works).send()
        await beside.work(beside.is_empty)
        assert runs == [1, 2]
        with pytest.raises(JobFailed, match="no such user"):
            await failing.result(timeout=5)
        assert await working.result(timeout=5) is None
        stores = beside.manager.stores
        assert stores.failed
        assert stores.history
        record = await stores.failed.get(failing.id)
        assert record
        assert (record.name, record.attempts, record.kind) == ("beside-fails", 2, "ValueError")
        rows, _ = await stores.history.page()
        assert {row.id: row.state for row in rows} == {failing.id: "failed", working.id: "done"}

    async def test_a_batch_and_a_chain_run_exactly(self, beside: Beside) -> None:
        ran: list[str] = []

        @job(name="beside-member")
        async def member(n: int) -> None:
            ran.append(f"member {n}")
            if n == 3:
                raise Fail("three")

        @job(name="beside-link")
        async def link(n: int) -> None:
            ran.append(f"link {n}")

        @job(name="beside-end")
        async def ended(batch: BatchState) -> None:
            ran.append(f"{batch.processed} of {batch.total}, {batch.failed} failed")

        sent = await Batch([member.bind(n=n) for n in range(10)]).finally_(ended).send()
        await Chain(*(link.bind(n=n) for n in range(3))).send()
        assert await beside.held() == [0, 11]
        await beside.work(beside.is_empty)
        assert sorted(one for one in ran if one.startswith("member")) == [f"member {n}" for n in range(10)]
        assert [one for one in ran if one.startswith("link")] == ["link 0", "link 1", "link 2"]
        assert "10 of 10, 1 failed" in ran
        assert (await sent.refresh()).finished

    async def test_one_worker_serves_both_with_its_slots(self, beside: Beside) -> None:
        running, most, ran = 0, 0, 0

        @job(name="beside-occupy")
        async def occupy() -> None:
            nonlocal running, most, ran
            running, ran = running + 1, ran + 1
            most = max(most, running)
            await asyncio.sleep(0.02)
            running -= 1

        jobs = [dispatch(occupy), dispatch(occupy).priority(2)]
        await dispatch_many([each for _ in range(30) for each in (jobs[0].tags("a"), jobs[1].tags("b"))])
        for unsent in jobs:
            unsent.disarm()
        assert await beside.held() == [30, 30]
        await beside.work(beside.is_empty)
        assert (ran, most) == (60, 4)

    async def test_a_carried_job_cannot_be_taken_back(self, beside: Beside) -> None:
        @job(name="beside-carried")
        async def carried() -> None: ...

        receipt = await dispatch(carried).send()
        with pytest.raises(UnsupportedByDriver, match="sqs"):
            await receipt.cancel()


@pytest.mark.kafka
async def test_kafka_beside_a_store(kafka_brokers: str, tmp_path: Path) -> None:
    ran: list[str] = []

    @job(name="beside-kafka")
    async def note(what: str) -> str:
        ran.append(what)
        return what.upper()

    prefix = fresh_prefix()
    manager = Manager(
        f"kafka://{kafka_brokers}",
        store=f"sqlite:///{tmp_path}/store.db",
        settings=Settings(prefix=prefix, options={"kafka_partitions": 1}),
    )
    try:
        for adapter in manager.route.adapters:
            await adapter.setup(["default"])
        async with manager:
            beside = Beside(manager, "database")
            receipts = [
                await dispatch(note, what="plain").send(),
                await dispatch(note, what="unique").unique("k").send(),
                await dispatch(note, what="urgent").priority(1).send(),
            ]
            assert [receipt.via for receipt in receipts] == ["kafka", "database", "database"]
            await Batch([note.bind(what="member")]).then(note.bind(what="then")).send()

            async def all_ran() -> bool:
                return len(ran) == 5

            await beside.work(all_ran)
            results = [await receipt.result(timeout=5) for receipt in receipts]
            assert results == ["PLAIN", "UNIQUE", "URGENT"]
    finally:
        await drop_kafka(kafka_brokers, prefix)


@pytest.mark.redis
async def test_a_transaction_on_redis_commits_through_a_database(redis_url: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    ran: list[str] = []

    @job(name="beside-invoice")
    async def invoice(number: int) -> None:
        ran.append(f"invoice {number}")

    prefix = fresh_prefix()
    manager = Manager(redis_url, store=f"sqlite:///{path}", settings=Settings(prefix=prefix))
    assert manager.store is not None
    await manager.store.setup(["default"])
    async with manager, aiosqlite.connect(path, isolation_level=None) as connection:
        await connection.execute("CREATE TABLE orders (number INTEGER)")
        for number, end in ((1, "ROLLBACK"), (2, "COMMIT")):
            await connection.execute("BEGIN IMMEDIATE")
            await connection.execute("INSERT INTO orders VALUES (?)", (number,))
            receipt = await dispatch(invoice, number=number).using(connection).send()
            assert receipt.via == manager.store.capabilities.driver
            await connection.execute(end)
        plain = await dispatch(invoice, number=3).send()
        assert plain.via == "redis"
        assert await Worker(manager).run_once() == 2
        assert sorted(ran) == ["invoice 2", "invoice 3"]
        assert await plain.result(timeout=5) is None
        adapter: Any = manager.adapter
        await drop_redis(adapter)
