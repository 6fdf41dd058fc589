"""Delay topics: forwarded when due, in order, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka.structs import TopicPartition

from nimbusq.driver import DriverSettings
from nimbusq.errors import StoreUnavailable
from nimbusq.testing.clock import FakeClock
from nimbusq_kafka import delays as delays_module
from nimbusq_kafka.broker_clock import BrokerClock
from nimbusq_kafka.config import KafkaConfig
from nimbusq_kafka.delays import Delays
from nimbusq_kafka.gate import Gate
from nimbusq_kafka.news import News
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.records import Counters, Header, Outgoing
from nimbusq_kafka.topics import DELAYS, TopicNames
from nimbusq_kafka.window import Window

HOUR = DELAYS[1]


@dataclass(frozen=True)
class Record:
    offset: int
    timestamp: int
    headers: list[Header]
    value: bytes = b"x"
    topic: str = "nimbusq.q.delay.1h"
    partition: int = 0


@dataclass
class Member:
    partitions: list[Partition]
    gate: Gate = field(default_factory=Gate)
    appetite: News = field(default_factory=News)
    touched: list[Partition] = field(default_factory=list)
    steady: bool = True

    @property
    def committer(self) -> Member:
        return self

    def touch(self, partition: Partition) -> None:
        self.touched.append(partition)


class Outbox:
    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.failures: list[BaseException] = []

    async def send(self, records: Sequence[Outgoing]) -> list[BaseException | None]:
        if self.failures:
            raise self.failures.pop()
        self.sent += [record for record in records if not record.topic.endswith("clock")]
        return [None] * len(records)

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in self.sent]


class Bench:
    def __init__(self) -> None:
        self.machine = FakeClock()
        self.clock = BrokerClock(self.machine)
        self.clock.saw(self.machine.time())
        self.partition = Partition(TopicPartition("nimbusq.q.delay.1h", 0), "q", HOUR, Window(0))
        self.member: Any = Member([self.partition])
        self.member.gate.open()
        self.outbox: Any = Outbox()
        names = TopicNames(KafkaConfig.from_url("kafka://a", DriverSettings()))
        self.delays = Delays(self.member, self.outbox, names, self.clock)

    def read(self, *delays: float) -> None:
        """Records with those delays are appended now and read at once."""
        now = int(self.machine.time() * 1000)
        first = self.partition.seen
        self.partition.accept(
            Record(first + n, now, Counters(delay=delay).to_headers(), value=f"{delay:g}".encode())
            for n, delay in enumerate(delays)
        )
        self.delays.line_up(self.partition)

    async def forward(self, *, seconds: float) -> None:
        """Let that time pass, and the forwarder do what is due."""
        await self.machine.advance(seconds)
        forwarding = asyncio.ensure_future(self.delays.forward())
        await asyncio.sleep(0.02)
        forwarding.cancel()
        await asyncio.gather(forwarding, return_exceptions=True)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_jobs_are_forwarded_when_they_are_due_in_the_order_of_their_times(bench: Bench) -> None:
    bench.read(300.0, 100.0, 200.0)
    await bench.forward(seconds=99.0)
    assert bench.outbox.values == []
    await bench.forward(seconds=101.0)
    assert bench.outbox.values == [b"100", b"200"]
    assert {record.topic for record in bench.outbox.sent} == {"nimbusq.q"}
    window = bench.partition.window
    assert (window.base, window.is_done(1), window.is_done(2)) == (0, True, True)
    await bench.forward(seconds=100.0)
    assert (bench.outbox.values[-1], window.base) == (b"300", 3)
    assert bench.partition.ahead == 0


async def test_a_job_that_cannot_be_written_stays_in_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays_module, "_RETRY", 0.005)
    bench.read(100.0)
    bench.outbox.failures = [StoreUnavailable("away")]
    await bench.forward(seconds=101.0)
    assert bench.outbox.values == [b"100"]
    assert bench.partition.window.base == 1


async def test_nothing_is_forwarded_while_the_group_rebalances(bench: Bench) -> None:
    bench.read(100.0)
    await bench.member.gate.close()
    await bench.forward(seconds=101.0)
    assert bench.outbox.values == []


async def test_what_belongs_to_another_member_now_is_left_to_it(bench: Bench) -> None:
    bench.read(100.0)
    bench.partition.alive = False
    await bench.forward(seconds=101.0)
    assert bench.outbox.values == []
    assert bench.partition.window.base == 0


async def test_reading_stops_at_the_bound_and_nothing_moves_before_it_must(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class holds delays above a minute: whatever is behind the bound is due in a minute at the soonest."""
    monkeypatch.setattr(delays_module, "READ_AHEAD", 4)
    bench.read(3600.0, 3000.0, 2000.0)
    assert bench.delays.has_room(bench.partition)
    bench.read(1000.0)
    assert not bench.delays.has_room(bench.partition)
    await bench.machine.advance(59.0)
    await bench.delays._make_room_in(bench.partition, HOUR)
    assert bench.outbox.sent == []


async def test_the_oldest_move_on_when_something_behind_the_bound_may_be_due(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays_module, "READ_AHEAD", 4)
    monkeypatch.setattr(delays_module, "_CHUNK", 2)
    bench.read(3600.0, 100.0, 3000.0, 2000.0)
    await bench.machine.advance(60.0)
    await bench.delays._make_room_in(bench.partition, HOUR)
    assert bench.delays.has_room(bench.partition)
    assert bench.partition.window.base == 2
    moved = {record.value: (record.topic, dict(record.headers)) for record in bench.outbox.sent}
    assert set(moved) == {b"3600", b"100"}
    assert moved[b"3600"][0] == "nimbusq.q.delay.1h"
    assert moved[b"100"][0] == "nimbusq.q.delay.1m", "with what is left of its delay"
    assert float(moved[b"3600"][1]["nimbusq-delay"]) == pytest.approx(3540.0, abs=0.01)
    assert float(moved[b"100"][1]["nimbusq-delay"]) == pytest.approx(40.0, abs=0.01)
