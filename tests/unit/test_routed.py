"""Routing: plain jobs through the carrier, whatever ties jobs together through the store beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import MethodType
from typing import Any, cast

import pytest

from nimbusq import (
    Batch,
    BatchState,
    Chain,
    ConfigError,
    Fail,
    Manager,
    Receipt,
    Settings,
    UnsupportedByDriver,
    Worker,
    dispatch,
    dispatch_many,
    job,
)
from nimbusq.driver import Adapter, Capabilities, DriverSettings, Settled, Settlement, Stores
from nimbusq.envelope import ChainRest, Envelope, Overlap, Rate, Unique
from nimbusq.routed import Route
from nimbusq_sync import SyncAdapter

NEEDS: dict[str, dict[str, Any]] = {
    "unique jobs": {"unique": Unique(key="k")},
    "jobs without overlap": {"overlap": Overlap(key="k")},
    "rates per key": {"rate": Rate(key="k", per_second=1)},
    "batches": {"batch_id": "b"},
    "chains": {"chain": ChainRest(id="c")},
    "priorities": {"priority": 1},
}


class Carrier(SyncAdapter):
    """Says of itself what SQS says, and writes down what it settles."""

    def __init__(self, **of_a_clone: Any) -> None:
        super().__init__(**{"inline": False, **of_a_clone})
        self.capabilities: Capabilities = replace(
            self.capabilities,
            driver="sqs",
            atomic=False,
            priorities=False,
            cancellable=False,
            fenced=False,
            exact_delay=900.0,
        )
        self.stores = Stores()
        self.log: list[str] = []

    async def settle(
        self, settlements: Sequence[Settlement], *, tx: object | None = None
    ) -> Sequence[Settled]:
        for settlement in settlements:
            assert settlement.failed is None
            assert settlement.history is None
            self.log.append(f"settle {type(settlement.outcome).__name__}")
        return await super().settle(settlements, tx=tx)


def new_store() -> SyncAdapter:
    return SyncAdapter(inline=False, settings=DriverSettings(testing=True))


def envelope(**fields: Any) -> Envelope:
    return Envelope(**{"id": "i", "name": "Probe", "queue": "default", **fields})


class TestRoute:
    def test_a_plain_job_travels_through_the_carrier(self) -> None:
        carrier = Carrier()
        assert Route(carrier).of(envelope()) is carrier
        assert Route(carrier, new_store()).of(envelope()) is carrier
        assert Route(carrier, new_store()).of(envelope(expires_in=5.0, timeout=1.0, tags=("a",))) is carrier

    @pytest.mark.parametrize("need", NEEDS)
    def test_what_the_carrier_lacks_is_the_stores(self, need: str) -> None:
        store = new_store()
        assert Route(Carrier(), store).of(envelope(**NEEDS[need])) is store

    @pytest.mark.parametrize("need", NEEDS)
    def test_without_a_store_it_is_refused_by_name_with_a_remedy(self, need: str) -> None:
        with pytest.raises(UnsupportedByDriver, match=need) as caught:
            Route(Carrier()).of(envelope(**NEEDS[need]))
        assert (caught.value.driver, caught.value.need) == ("sqs", need)
        assert "QUEUE_STORE_URL" in caught.value.remedy

    def test_a_delay_that_the_carrier_keeps_badly_is_the_stores_where_there_is_one(self) -> None:
        carrier, store = Carrier(), new_store()
        assert Route(carrier, store).of(envelope(delay=900.0)) is carrier
        assert Route(carrier, store).of(envelope(delay=901.0)) is store
        assert Route(carrier).of(envelope(delay=901.0)) is carrier

    def test_a_carrier_that_can_tie_jobs_together_leaves_that_to_the_store(self) -> None:
        """Else a unique key in the one and the same key in the other would not see each other."""
        carrier, store = new_store(), new_store()
        route = Route(carrier, store)
        assert route.of(envelope(unique=Unique(key="k"))) is store
        assert route.of(envelope(batch_id="b")) is store
        assert route.of(envelope(priority=1)) is carrier

    def test_a_transaction_is_the_stores_or_refused(self) -> None:
        store = new_store()
        with pytest.raises(UnsupportedByDriver, match="sync driver cannot do dispatch in a transaction"):
            Route(Carrier(), store).of(envelope(), tx=True)
        store.capabilities = replace(store.capabilities, transactional=True)
        assert Route(Carrier(), store).of(envelope(), tx=True) is store

    async def test_each_adapter_has_its_jobs_in_one_call_and_answers_come_in_the_jobs_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        carrier, store = Carrier(), new_store()
        calls: list[tuple[Adapter, list[str]]] = []

        async def push(self: SyncAdapter, envelopes: Sequence[Envelope], *, tx: object | None = None) -> Any:
            calls.append((self, [one.id for one in envelopes]))
            return await SyncAdapter.push(self, envelopes, tx=tx)

        for adapter in (carrier, store):
            monkeypatch.setattr(adapter, "push", MethodType(push, adapter))
        first, second = Unique(key="k"), Unique(key="l")
        jobs = [
            envelope(id="a", unique=first),
            envelope(id="b"),
            envelope(id="c", unique=second),
            envelope(id="d"),
            envelope(id="e", unique=first),
        ]
        async with Manager(carrier, store=store) as manager:
            sent = await manager.push(jobs)
            assert [(answer.id, answer.holder) for answer in sent.answers] == [
                ("a", None), ("b", None), ("c", None), ("d", None), ("e", "a"),
            ]  # fmt: skip
            assert calls == [(carrier, ["b", "d"]), (store, ["a", "c", "e"])]
            await manager.push(jobs[1:2])
            assert calls[2:] == [(carrier, ["b"])]
            assert (await manager.push([])).answers == []

    def test_a_lone_carrier_that_can_do_everything_takes_all(self) -> None:
        assert Route(new_store()).takes_all()
        assert not Route(new_store()).takes_all(tx=True)
        assert not Route(Carrier()).takes_all()
        assert not Route(new_store(), new_store()).takes_all()

    async def test_no_jobs_are_no_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(SyncAdapter, "push")
        async with Manager(new_store()) as manager:
            assert (await manager.push([])).answers == []

    def test_a_store_must_be_able_to_tie_jobs_together(self) -> None:
        with pytest.raises(ConfigError, match="sqs driver cannot be a store"):
            Route(new_store(), Carrier())

    def test_each_of_the_two_is_told_its_own_options(self) -> None:
        settings = Settings(
            driver="kafka://localhost:9092",
            store="redis://localhost",
            options={"kafka_partitions": 2},
            store_options={"timeout": 3.0},
        )
        manager = Manager(settings=settings)
        assert manager.store is not None
        assert [adapter.capabilities.driver for adapter in manager.route.adapters] == ["kafka", "redis"]
        with pytest.raises(ConfigError, match="has no option kafka_partitions"):
            Manager(settings=settings.model_copy(update={"store_options": {"kafka_partitions": 2}}))

    def test_an_inline_driver_has_no_store_beside_it(self) -> None:
        with pytest.raises(ConfigError, match="Unset QUEUE_STORE_URL"):
            Manager(SyncAdapter(), store=new_store())


# --- a worker between the two --------------------------------------------------------------------------------


class Side:
    """A carrier with a store beside it, and a worker that runs when the test says so."""

    def __init__(self) -> None:
        self.carrier, self.store = Carrier(), new_store()
        self.manager = Manager(
            cast("Adapter", self.carrier), store=self.store, settings=Settings(driver="memory")
        )

    async def work(self) -> int:
        """Run what is due, also what that makes due; how many jobs it was."""
        total = 0
        while ran := await Worker(self.manager, "default").run_once():
            total += ran
        return total

    async def held(self) -> tuple[int | None, int | None]:
        """Jobs in the carrier and in the store."""
        (carried,), (kept,) = await self.carrier.depth(["default"]), await self.store.depth(["default"])
        return (carried.pending or 0) + (carried.delayed or 0), (kept.pending or 0) + (kept.delayed or 0)


@pytest.fixture
async def side() -> AsyncIterator[Side]:
    side = Side()
    async with side.manager:
        yield side


@pytest.fixture
def ran() -> list[str]:
    """What the jobs of a test write down."""
    return []


class TestBeside:
    async def test_a_plain_job_runs_and_leaves_its_records_in_the_store(self, side: Side) -> None:
        @job
        async def double(n: int) -> int:
            return 2 * n

        receipt = await dispatch(double, n=21).send()
        assert (receipt.status, receipt.via) == ("queued", "sqs")
        assert await side.held() == (1, 0)
        assert await side.work() == 1
        assert await receipt.result(timeout=1) == 42
        (row,), _ = await side.store.stores.history.page()
        assert (row.id, row.state, row.attempt) == (receipt.id, "done", 1)

    async def test_records_are_written_before_the_acknowledgement(self, side: Side) -> None:
        @job(retries=0)
        async def breaks() -> None:
            raise ValueError("no")

        for store, verb in ((side.store.stores.failed, "push"), (side.store.stores.history, "push")):
            _tell(side, store, verb)
        await dispatch(breaks).send()
        await side.work()
        assert side.carrier.log == ["MemoryFailedStore", "MemoryHistory", "settle Failed"]
        assert await side.store.stores.failed.count() == 1

    async def test_a_failed_plain_job_can_be_retried_from_the_store(self, side: Side, ran: list[str]) -> None:
        @job(retries=0)
        async def fails_once() -> None:
            ran.append("run")
            if len(ran) == 1:
                raise Fail("first")

        receipt = await dispatch(fails_once).send()
        await side.work()
        assert await side.store.stores.failed.retry(receipt.id)
        await side.work()
        assert len(ran) == 2
        assert await side.store.stores.failed.count() == 0

    async def test_a_result_is_awaited_while_the_carrier_still_has_the_job(self, side: Side) -> None:
        @job
        async def slow() -> str:
            return "at last"

        receipt = await dispatch(slow).send()
        with pytest.raises(TimeoutError):
            await receipt.result(timeout=0.05)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(receipt.result(timeout=5))
            await asyncio.sleep(0)
            await side.work()
        assert waiting.result() == "at last"

    async def test_each_need_goes_through_the_store_and_runs(self, side: Side, ran: list[str]) -> None:
        @job
        async def note(what: str) -> None:
            ran.append(what)

        receipts: list[Receipt[None]] = [
            await dispatch(note, what="unique").unique("k").send(),
            await dispatch(note, what="lock").unique_for(60, key="k").send(),
            await dispatch(note, what="overlap").without_overlapping("k").send(),
            await dispatch(note, what="urgent").priority(1).send(),
            await dispatch(note, what="late").delay(901).send(),
        ]
        assert [receipt.via for receipt in receipts] == ["sync"] * 5
        assert await side.held() == (0, 5)
        assert await side.work() == 4
        await side.store.advance(901)
        assert await side.work() == 1
        assert sorted(ran) == ["late", "lock", "overlap", "unique", "urgent"]

    async def test_a_batch_and_a_chain_run_through_the_store(self, side: Side, ran: list[str]) -> None:
        @job
        async def note(what: str) -> None:
            ran.append(what)

        @job
        async def all_done(batch: BatchState) -> None:
            ran.append(f"{batch.processed} of {batch.total}")

        sent = await Batch([note.bind(what="a"), note.bind(what="b")]).then(all_done).send()
        await Chain(note.bind(what="1"), note.bind(what="2"), note.bind(what="3")).send()
        assert await side.held() == (0, 3)
        assert await side.work() == 6
        assert [one for one in ran if one in "123"] == ["1", "2", "3"]
        assert sorted(ran) == ["1", "2", "2 of 2", "3", "a", "b"]
        assert (await sent.refresh()).finished

    async def test_many_jobs_of_both_kinds_answer_in_their_order(self, side: Side) -> None:
        @job
        async def note(what: str) -> None: ...

        jobs = [dispatch(note, what="a"), dispatch(note, what="b").unique("k"), dispatch(note, what="c")]
        receipts = await dispatch_many(jobs)
        assert [receipt.via for receipt in receipts] == ["sqs", "sync", "sqs"]
        assert (await side.manager.depth()).pending == 3
        assert await side.work() == 3

    async def test_one_worker_fills_its_slots_from_both_and_no_further(self, side: Side) -> None:
        running, most = 0, 0

        @job
        async def occupy() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1

        for n in range(6):
            await dispatch(occupy).send()
            await dispatch(occupy).unique(str(n)).send()
        worker = Worker(side.manager, "default", concurrency=3)
        task = asyncio.create_task(worker.run())
        async with asyncio.timeout(5):
            while (await side.held()) != (0, 0) or worker.running:
                await asyncio.sleep(0.005)
        worker.stop()
        await task
        assert most == 3
        assert worker.counters["default"]["processed"] == 12

    async def test_a_carried_job_cannot_be_cancelled_and_a_kept_one_can(self, side: Side) -> None:
        @job
        async def note() -> None: ...

        carried, kept = await dispatch(note).send(), await dispatch(note).unique("k").send()
        with pytest.raises(UnsupportedByDriver, match="sqs driver cannot do cancelling of jobs"):
            await carried.cancel()
        assert await kept.cancel() is True
        assert await side.held() == (1, 0)


def _tell(side: Side, store: Any, verb: str) -> None:
    """Write down in the carrier's log when the store is called."""
    call = getattr(store, verb)

    async def told(*args: Any) -> Any:
        side.carrier.log.append(type(store).__name__)
        return await call(*args)

    setattr(store, verb, told)
