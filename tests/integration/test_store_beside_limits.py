"""Every limit that the kafka and sqs drivers declare: refused by name without a store, met by the store beside them.

What a driver can do by itself (leases, fencing, delays) is in its own tests; here is what it cannot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from nimbusq import Batch, Chain, Manager, Settings, UnsupportedByDriver, dispatch, job
from nimbusq.driver import DriverSettings
from nimbusq.errors import PayloadTooLarge
from nimbusq_sqs import SqsAdapter
from tests.drivers.kafka_env import drop as drop_kafka
from tests.drivers.sqs_env import drop as drop_sqs
from tests.drivers.sqs_env import fresh_prefix, new_session


@job(name="limits-probe")
async def probe(text: str = "") -> str:
    return text


Send = Callable[[], Awaitable[Any]]

NEEDS: dict[str, tuple[Send, str]] = {
    "unique": (lambda: dispatch(probe).unique("k").send(), "unique jobs"),
    "unique lock": (lambda: dispatch(probe).unique_for(60, key="k").send(), "unique jobs"),
    "overlap": (lambda: dispatch(probe).without_overlapping("k").send(), "jobs without overlap"),
    "rate": (lambda: dispatch(probe).rate_limit("k", 1).send(), "rates per key"),
    "priority": (lambda: dispatch(probe).priority(1).send(), "priorities"),
    "chain": (lambda: Chain(probe.bind(), probe.bind()).send(), "chains"),
    "batch": (lambda: Batch([probe.bind()]).send(), "batches"),
}
"""How to ask for it, and the words of the refusal."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """The carrier's URL, and a prefix of the test's own."""

    url: str
    settings: Settings

    @property
    def driver(self) -> str:
        return self.url.partition(":")[0]

    @asynccontextmanager
    async def manager(self, store: str | None = None) -> AsyncIterator[Manager]:
        """On the carrier, with the store of that URL beside it."""
        manager = Manager(self.url, store=store, settings=self.settings)
        for adapter in manager.route.adapters:
            await adapter.setup(["default"])
        async with manager:
            yield manager


@pytest.fixture
async def kafka(kafka_brokers: str) -> AsyncIterator[Carrier]:
    prefix = fresh_prefix()
    yield Carrier(f"kafka://{kafka_brokers}", settings_of(prefix))
    await drop_kafka(kafka_brokers, prefix)


@pytest.fixture
async def sqs(sqs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Carrier]:
    prefix = fresh_prefix()
    monkeypatch.setenv("SQS_ENDPOINT_URL", sqs_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    yield Carrier("sqs://us-east-1", settings_of(prefix))
    settings = DriverSettings(prefix=prefix)
    await drop_sqs(SqsAdapter(session=new_session(), endpoint_url=sqs_endpoint, settings=settings), prefix)


def settings_of(prefix: str) -> Settings:
    return Settings(prefix=prefix, max_body=10_000_000, options={"kafka_partitions": 1})


@pytest.fixture(
    params=[pytest.param("kafka", marks=pytest.mark.kafka), pytest.param("sqs", marks=pytest.mark.sqs)]
)
def carrier(request: pytest.FixtureRequest) -> Carrier:
    found: Carrier = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


async def test_without_a_store_each_is_refused_and_nothing_is_sent(carrier: Carrier) -> None:
    refusals: dict[str, str] = {}
    async with carrier.manager() as manager:
        for name, (send, _) in NEEDS.items():
            with pytest.raises(UnsupportedByDriver, match="QUEUE_STORE_URL") as refused:
                await send()
            assert refused.value.driver == carrier.driver
            refusals[name] = refused.value.need
        depth = await manager.depth()
    assert refusals == {name: words for name, (_, words) in NEEDS.items()}
    assert (depth.pending, depth.delayed, depth.running) == (0, 0, 0)


async def test_without_a_store_nothing_is_known_of_a_sent_job(carrier: Carrier) -> None:
    """Neither its result nor its state nor its end; and it cannot be taken back."""
    async with carrier.manager() as manager:
        receipt = await dispatch(probe).send()
        with pytest.raises(UnsupportedByDriver, match="results"):
            await receipt.result(timeout=1)
        with pytest.raises(UnsupportedByDriver, match="looking up jobs"):
            await receipt.refresh()
        with pytest.raises(UnsupportedByDriver, match="cancelling"):
            await receipt.cancel()
        for store in ("failed", "history", "jobs", "workers"):
            with pytest.raises(UnsupportedByDriver, match="QUEUE_STORE_URL"):
                manager.require(store, store)


async def test_without_a_store_a_transaction_is_refused(carrier: Carrier) -> None:
    async with carrier.manager():
        with pytest.raises(UnsupportedByDriver, match="transaction"):
            await dispatch(probe).using(object()).send()


async def test_a_store_takes_what_the_carrier_lacks(carrier: Carrier, sqlite: str) -> None:
    async with carrier.manager(sqlite) as manager:
        for send, _ in NEEDS.values():
            await send()
        held = [(await adapter.depth(["default"]))[0].pending for adapter in manager.route.adapters]
        assert held == [0, len(NEEDS)], "of the chain its first link"
        assert (await dispatch(probe).send()).via == carrier.driver


async def test_delays_beyond_what_the_carrier_keeps_well_are_the_stores(
    carrier: Carrier, sqlite: str
) -> None:
    async with carrier.manager(sqlite):
        receipts = [await dispatch(probe).delay(seconds).send() for seconds in (900, 901)]
    expected = {"sqs": ["sqs", "database"], "kafka": ["kafka", "kafka"]}[carrier.driver]
    assert [receipt.via for receipt in receipts] == expected


async def test_a_transaction_takes_a_database_as_store(carrier: Carrier, sqlite: str) -> None:
    path = sqlite.removeprefix("sqlite:///")
    async with carrier.manager(sqlite) as manager, aiosqlite.connect(path, isolation_level=None) as database:
        for end in ("ROLLBACK", "COMMIT"):
            await database.execute("BEGIN IMMEDIATE")
            assert (await dispatch(probe).using(database).send()).via == "database"
            await database.execute(end)
        assert (await manager.depth()).pending == 1


async def test_a_redis_store_takes_no_transaction(carrier: Carrier, redis_url: str) -> None:
    async with carrier.manager(redis_url):
        with pytest.raises(UnsupportedByDriver, match="redis driver cannot do dispatch in a transaction"):
            await dispatch(probe).using(object()).send()


async def test_with_a_store_a_carried_job_still_cannot_be_taken_back(carrier: Carrier, sqlite: str) -> None:
    async with carrier.manager(sqlite):
        carried, kept = await dispatch(probe).send(), await dispatch(probe).unique("k").send()
        with pytest.raises(UnsupportedByDriver, match=f"{carrier.driver} driver cannot do cancelling"):
            await carried.cancel()
        assert await kept.cancel() is True


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a store"])
async def test_a_job_that_is_too_large_for_the_carrier_is_refused(
    carrier: Carrier, sqlite: str, beside: bool
) -> None:
    """A store does not change that: where a job goes is decided by what it needs, not by its size."""
    async with carrier.manager(sqlite if beside else None) as manager:
        largest = manager.adapter.capabilities.max_body
        assert largest is not None
        with pytest.raises(PayloadTooLarge):
            await dispatch(probe, text="x" * largest).send()
        assert (await manager.depth()).pending == 0
