"""A storm over Kafka: workers are killed, join and leave, and the broker is restarted, while jobs go through.

pytest tests/faults/test_kafka_storm.py -s                                  the figures are printed
KAFKA_STORM_JOBS=5000 KAFKA_STORM_KILLS=30 pytest … -s                       the whole storm, of about five minutes

With a store beside Kafka a batch goes along with each part of the jobs, and every job's end must be in the history.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nimbusq import Batch, Manager, dispatch, dispatch_many
from nimbusq.batch import SentBatch
from nimbusq.ids import derived_id
from nimbusq_redis import RedisAdapter
from tests.drivers.redis_env import drop as drop_redis
from tests.faults.kafka_fleet import Fleet, kafka_fleet
from tests.faults.kafka_worker import AlwaysFails, sleep_for, tell_batch

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

SERVICES = Path(__file__).parents[2] / "scripts" / "services"
JOBS = int(os.environ.get("KAFKA_STORM_JOBS", "600"))
KILLS = int(os.environ.get("KAFKA_STORM_KILLS", "6"))
MEMBERS = 20
"""Jobs of each batch; the last of them fails for good."""


class Broker:
    """One that may be restarted, since nobody else uses it."""

    def __init__(self, folder: Path) -> None:
        self._env = {**os.environ, "NIMBUSQ_SERVICES_RUN": str(folder)}
        self.address = ""

    async def do(self, verb: str) -> str:
        process = await asyncio.create_subprocess_exec(
            str(SERVICES), verb, "kafka", env=self._env, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(120):
            printed, _ = await process.communicate()
        assert process.returncode == 0
        return printed.decode()

    async def start(self) -> None:
        printed = await self.do("start")
        self.address = printed.split("KAFKA_BROKERS=")[1].split()[0]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(tmp_path / "broker")
    await broker.start()
    try:
        yield broker
    finally:
        await broker.do("stop")


@dataclass(slots=True)
class Sent:
    """What was sent. plain: ids of jobs that were accepted; uncertain: how many may have been."""

    plain: list[str] = field(default_factory=list)
    uncertain: int = 0
    batches: list[SentBatch] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.plain) + self.uncertain + MEMBERS * len(self.batches)

    @property
    def good(self) -> set[str]:
        """Ids of all that must run to their end."""
        members = {derived_id(batch.id, n) for batch in self.batches for n in range(MEMBERS - 1)}
        return members.union(self.plain)

    async def more(self, fleet: Fleet, count: int, chance: random.Random) -> None:
        """Jobs of which about half outlast the revoke's grace, so that rebalances cut them."""
        if fleet.manager.store is not None:
            members = [sleep_for.bind(seconds=chance.uniform(0.0, 1.0)) for _ in range(MEMBERS - 1)]
            batch = Batch([*members, AlwaysFails()]).finally_(tell_batch)
            self.batches.append(await batch.send(fleet.manager))
            count -= MEMBERS
        jobs = [dispatch(sleep_for, seconds=chance.uniform(0.2, 2.0)) for _ in range(count)]
        receipts = await dispatch_many(jobs)
        accepted = [receipt.id for receipt in receipts if receipt.error is None]
        self.plain += accepted
        self.uncertain += len(receipts) - len(accepted)


async def storm(fleet: Fleet, broker: Broker) -> Sent:
    """Rounds of jobs, in each of which a worker is killed, while another one joins or leaves in good order; half way
    the broker is restarted."""
    chance = random.Random(11)
    sent = Sent()
    for number in range(KILLS):
        await sent.more(fleet, (JOBS - sent.count) // (KILLS - number), chance)
        await asyncio.sleep(1.0)
        if number == KILLS // 2:
            await broker.do("stop")
            await broker.start()
        alive = [worker for worker in fleet.workers if worker.returncode is None]
        await fleet.kill(chance.choice(alive))
        await fleet.start()
        if number % 3 == 1:
            await fleet.start()
        elif number % 3 == 2:
            alive = [worker for worker in fleet.workers if worker.returncode is None]
            await fleet.kill(alive[0], signal.SIGTERM)
    return sent


@pytest.fixture(params=[None, "sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """The URL of the store beside Kafka."""
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/store.db"
        case "redis":
            return os.environ["REDIS_URL"]
        case _:
            return None


async def test_nothing_is_lost_in_a_storm(broker: Broker, store: str | None, tmp_path: Path) -> None:
    async with kafka_fleet(broker.address, tmp_path, store=store, partitions=6, session_timeout=3.0) as fleet:
        for _ in range(4):
            await fleet.start()
        at = asyncio.get_running_loop().time()
        sent = await storm(fleet, broker)
        waiting = (await fleet.manager.depth("work")).pending or 0
        with suppress(TimeoutError):  # then the figures tell
            await fleet.until(lambda: fleet.ids("ran").keys() >= sent.good, 300)
            async with asyncio.timeout(60):
                while (depth := await fleet.manager.depth("work")).pending or depth.running or depth.delayed:
                    await asyncio.sleep(0.5)
        report(fleet, sent, waiting, asyncio.get_running_loop().time() - at)
        assert sent.good - fleet.ids("ran").keys() == set()
        depth = await fleet.manager.depth("work")
        assert (depth.pending, depth.delayed, depth.running) == (0, 0, 0)
        assert ended_before_they_started(fleet) == []
        await check_batches(fleet, sent)
        if fleet.manager.store is not None:
            ends = await history(fleet.manager)
            assert [job for job in sent.plain if ends.get(job) != "done"] == [], "each was settled"
            if isinstance(fleet.manager.store, RedisAdapter):
                await drop_redis(fleet.manager.store)


async def check_batches(fleet: Fleet, sent: Sent) -> None:
    """Exact, whatever happened to the workers that counted, and told when it was over."""
    for batch in sent.batches:
        state = await batch.refresh()
        assert (state.total, state.pending, state.failed, state.finished) == (MEMBERS, 0, 1, True)
    told = {one["id"]: (one["total"], one["pending"], one["failed"]) for one in fleet.of("batch")}
    assert told == {batch.id: (MEMBERS, 0, 1) for batch in sent.batches}


async def history(manager: Manager) -> dict[str, str]:
    """How each job ended."""
    kept = manager.require("history", "the history")
    ends: dict[str, str] = {}
    cursor: str | None = None
    while cursor != "":
        rows, cursor = await kept.page(limit=1_000, cursor=cursor or "")
        ends |= {row.id: row.state for row in rows}
    return ends


def ended_before_they_started(fleet: Fleet) -> list[str]:
    """Jobs that a worker was told are done, and that were started later all the same."""
    done: set[str] = set()
    again = []
    for event in fleet.events:
        if event["event"] == "done":
            done.add(event["id"])
        elif event["event"] == "start" and event["id"] in done:
            again.append(event["id"])
    return again


def report(fleet: Fleet, sent: Sent, waiting: int, took: float) -> None:
    starts, ran = fleet.ids("start"), fleet.ids("ran")
    figures = {
        "jobs": sent.count,
        "of them in batches": MEMBERS * len(sent.batches),
        "kills": KILLS,
        "joins": fleet.count("up"),
        "rebalances seen by a member": fleet.count("joined"),
        "sends that were uncertain": sent.uncertain,
        "lost": len(sent.good - ran.keys()),
        "waiting when the last worker was killed": waiting,
        "started more than once": sum(count > 1 for count in starts.values()),
        "of them started after they were done": len(ended_before_they_started(fleet)),
        "outcomes refused": fleet.count("refused"),
        "seconds": round(took, 1),
    }
    sys.stdout.write("\n" + "".join(f"{value:>8}  {name}\n" for name, value in figures.items()))
