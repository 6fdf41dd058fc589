"""A storm over Kafka: workers are killed, join and leave, and the broker is restarted, while jobs go through.

pytest tests/faults/test_kafka_storm.py -s                                  the figures are printed
KAFKA_STORM_JOBS=5000 KAFKA_STORM_KILLS=30 pytest … -s                       its size
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nimbusq import dispatch, dispatch_many
from tests.faults.kafka_fleet import Fleet, kafka_fleet
from tests.faults.kafka_worker import sleep_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

SERVICES = Path(__file__).parents[2] / "scripts" / "services"
JOBS = int(os.environ.get("KAFKA_STORM_JOBS", "5000"))
KILLS = int(os.environ.get("KAFKA_STORM_KILLS", "30"))


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


async def send(count: int, chance: random.Random) -> list[str]:
    """Jobs of which about half outlast the revoke's grace, so that rebalances cut them."""
    jobs = [dispatch(sleep_for, seconds=chance.uniform(0.2, 2.0)) for _ in range(count)]
    return [receipt.id for receipt in await dispatch_many(jobs)]


async def storm(fleet: Fleet, broker: Broker) -> list[str]:
    """Rounds of jobs, in each of which a worker is killed, while another one joins or leaves in good order; half way
    the broker is restarted. The ids of the jobs that were accepted."""
    chance = random.Random(11)
    sent: list[str] = []
    for number in range(KILLS):
        sent += await send((JOBS - len(sent)) // (KILLS - number), chance)
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


async def test_nothing_is_lost_in_a_storm(broker: Broker, tmp_path: Path) -> None:
    async with kafka_fleet(broker.address, tmp_path, partitions=6, session_timeout=3.0) as fleet:
        for _ in range(4):
            await fleet.start()
        at = asyncio.get_running_loop().time()
        sent = await storm(fleet, broker)
        waiting = (await fleet.manager.depth("work")).pending or 0
        await fleet.until(lambda: len(fleet.ids("ran")) == JOBS, 300)
        took = asyncio.get_running_loop().time() - at
        async with asyncio.timeout(60):
            while (depth := await fleet.manager.depth("work")).pending or depth.running or depth.delayed:
                await asyncio.sleep(0.5)
        report(fleet, sent, waiting, took)
        assert fleet.ids("ran").keys() == set(sent)
        assert ended_before_they_started(fleet) == []


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


def report(fleet: Fleet, sent: list[str], waiting: int, took: float) -> None:
    starts, ran = fleet.ids("start"), fleet.ids("ran")
    figures = {
        "jobs": len(sent),
        "kills": KILLS,
        "joins": fleet.count("up"),
        "rebalances seen by a member": fleet.count("joined"),
        "lost": len(set(sent) - ran.keys()),
        "waiting when the last worker was killed": waiting,
        "started more than once": sum(count > 1 for count in starts.values()),
        "of them started after they were done": len(ended_before_they_started(fleet)),
        "outcomes refused": fleet.count("refused"),
        "seconds": round(took, 1),
    }
    sys.stdout.write("\n" + "".join(f"{value:>8}  {name}\n" for name, value in figures.items()))
