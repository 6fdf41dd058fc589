"""Group commit: one in flight, the next carries all that has happened meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.errors import CommitFailedError, KafkaConnectionError
from aiokafka.structs import TopicPartition

from nimbusq.errors import StoreUnavailable
from nimbusq_kafka import committer as committer_module
from nimbusq_kafka.committer import Committer
from nimbusq_kafka.gate import Gate
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.troubles import CommitRefused
from nimbusq_kafka.window import Window

OWNER = b"owner-01"


class Consumer:
    """Answers commits when told to."""

    def __init__(self) -> None:
        self.commits: list[dict[int, tuple[int, set[int]]]] = []
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()

    async def commit(self, offsets: dict[TopicPartition, Any]) -> None:
        windows = {tp.partition: Window.read(*entry)[0] for tp, entry in offsets.items()}
        self.commits.append({number: (window.base, window.running) for number, window in windows.items()})
        if (error := await self.answers.get()) is not None:
            raise error


class Bench:
    def __init__(self) -> None:
        self.consumer = Consumer()
        self.gate = Gate()
        self.gate.open()
        self.committer = Committer(self.gate, OWNER, lambda: self.consumer)
        self.partitions = [Partition(TopicPartition("t", n), "q", None, Window(0)) for n in range(2)]

    def start(self, number: int, offset: int) -> asyncio.Task[None]:
        return asyncio.create_task(self._start(self.partitions[number], offset))

    async def _start(self, partition: Partition, offset: int) -> None:
        partition.window.start(offset)
        self.committer.touch(partition)
        await self.committer.covered()

    def finish(self, number: int, offset: int) -> asyncio.Task[None]:
        return asyncio.create_task(self._finish(self.partitions[number], offset))

    async def _finish(self, partition: Partition, offset: int) -> None:
        partition.window.finish(offset)
        self.committer.touch(partition)
        await self.committer.covered(at_once=False)

    async def sent(self, count: int) -> None:
        async with asyncio.timeout(2):
            while len(self.consumer.commits) < count:
                await asyncio.sleep(0.001)

    def answer(self, error: Exception | None = None) -> None:
        self.consumer.answers.put_nowait(error)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(committer_module, "_PAUSE", 0.01)
    bench = Bench()
    running = asyncio.ensure_future(bench.committer.run())
    yield bench
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_happens_during_a_commit_goes_into_the_next_one(bench: Bench) -> None:
    first = bench.start(0, 0)
    await bench.sent(1)
    later = [bench.start(0, 1), bench.start(1, 0), bench.start(1, 1)]
    await asyncio.sleep(0.01)
    assert len(bench.consumer.commits) == 1, "one in flight"
    bench.answer()
    await first
    await bench.sent(2)
    assert not any(task.done() for task in later), "the first commit did not carry them"
    bench.answer()
    await asyncio.gather(*later)
    assert bench.consumer.commits == [{0: (0, {0})}, {0: (0, {0, 1}), 1: (0, {0, 1})}]


async def test_what_finished_waits_for_a_claim_to_share_its_commit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "_LINGER", 60.0)
    finished = bench.finish(0, 0)
    await asyncio.sleep(0.01)
    assert bench.consumer.commits == []
    claimed = bench.start(1, 0)
    bench.answer()
    await asyncio.gather(finished, claimed)
    assert bench.consumer.commits == [{0: (1, set()), 1: (0, {0})}]


async def test_what_finished_does_not_wait_for_ever(bench: Bench) -> None:
    for offset in (0, 1):
        bench.answer()
        await bench.finish(0, offset)
    assert bench.consumer.commits == [{0: (1, set())}, {0: (2, set())}]


async def test_a_refused_commit_is_told_and_its_marks_go_out_again(bench: Bench) -> None:
    waiting = bench.start(0, 0)
    bench.answer(CommitFailedError())
    with pytest.raises(CommitRefused):
        await waiting
    await bench.sent(2)
    bench.answer()
    await bench.committer.covered()
    assert bench.consumer.commits[1] == {0: (0, {0})}


async def test_a_commit_without_an_answer_is_trouble_with_the_store(bench: Bench) -> None:
    waiting = bench.start(0, 0)
    bench.answer(KafkaConnectionError("gone"))
    with pytest.raises(StoreUnavailable, match="gone"):
        await waiting


async def test_nothing_is_committed_while_the_gate_is_closed(bench: Bench) -> None:
    await bench.gate.close()
    waiting = bench.start(0, 0)
    await asyncio.sleep(0.02)
    assert bench.consumer.commits == []
    bench.gate.open()
    bench.answer()
    await waiting


async def test_a_partition_that_has_gone_is_not_committed(bench: Bench) -> None:
    await bench.gate.close()
    waiting = [bench.start(0, 0), bench.start(1, 0)]
    bench.partitions[0].alive = False
    bench.gate.open()
    bench.answer()
    await asyncio.gather(*waiting)
    assert bench.consumer.commits == [{1: (0, {0})}]


async def test_the_low_watermark_is_known_when_it_is_committed(bench: Bench) -> None:
    window = bench.partitions[0].window
    window.finish(0)
    waiting = bench.start(0, 5)
    await bench.sent(1)
    window.finish(1)  # too late for this one
    assert bench.partitions[0].committed == 0
    bench.answer()
    await waiting
    assert bench.partitions[0].committed == 1


async def test_whoever_stopped_waiting_is_no_trouble(bench: Bench) -> None:
    waiting = bench.start(0, 0)
    await bench.sent(1)
    waiting.cancel()
    bench.answer()
    again = bench.start(0, 1)
    bench.answer()
    await again
