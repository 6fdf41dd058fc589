"""Kafka with real worker processes: killed, stopped, blocked, joining and leaving."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from nimbusq import dispatch, dispatch_many
from tests.faults.kafka_fleet import Fleet, kafka_fleet
from tests.faults.kafka_worker import AlwaysFails, KillsItsWorker, block_for, sleep_for

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

Launch = Callable[..., Any]


@pytest.fixture
def launch(kafka_brokers: str, tmp_path: Path) -> Launch:
    def with_options(**options: Any) -> Any:
        return kafka_fleet(kafka_brokers, tmp_path, **{"partitions": 1, "session_timeout": 3.0, **options})

    return with_options


async def test_a_commit_never_passes_an_unfinished_job(launch: Launch) -> None:
    """B09: the head of a partition takes long, the nine behind it are done, and the worker is killed."""
    async with launch() as fleet:
        head = await dispatch(sleep_for, seconds=5.0).send()
        others = await dispatch_many([dispatch(sleep_for, seconds=0.05) for _ in range(9)])
        worker = await fleet.start(concurrency=10)
        await fleet.until(lambda: fleet.count("done") == 9)
        await fleet.kill(worker)

        (window,) = (await fleet.committed(f"{fleet.prefix}.work")).values()
        assert (window.base, window.running, window.finished) == (0, {0}, 9)

        await fleet.start()
        await fleet.until(lambda: fleet.count("done") == 10)
        assert fleet.ids("start") == {head.id: 2, **dict.fromkeys((one.id for one in others), 1)}
        assert [one["attempt"] for one in fleet.of("start") if one["id"] == head.id] == [1, 2]
        assert [(one["id"], one["attempt"]) for one in fleet.of("lost")] == [(head.id, 1)]
        assert set(fleet.ids("done")) == {head.id, *(one.id for one in others)}


@pytest.mark.parametrize("handler", [sleep_for, block_for], ids=["awaits", "blocks the loop"])
async def test_a_job_longer_than_the_session_runs_once(launch: Launch, handler: Any) -> None:
    """B13: also where it blocks the event loop; the membership lives in a thread of its own."""
    async with launch(session_timeout=2.0) as fleet:
        await fleet.start(concurrency=2)
        await fleet.until(lambda: fleet.count("joined") == 1)
        long = await dispatch(handler, seconds=7.0).send()
        await fleet.until(lambda: fleet.count("done") == 1)
        assert fleet.ids("start") == {long.id: 1}
        assert fleet.count("joined") == 1, "no rebalance"
        assert fleet.count("refused") == 0
        (window,) = (await fleet.committed(f"{fleet.prefix}.work")).values()
        assert (window.base, window.running) == (1, set())


async def test_a_failing_job_holds_nobody_up_and_bytes_that_are_no_job_are_parked(launch: Launch) -> None:
    """B23."""
    async with launch() as fleet:
        worker = await fleet.start(concurrency=2)
        failing = await dispatch(AlwaysFails()).send()
        await fleet.manager.adapter.push_raw("work", b"\xff\xfe no envelope", job_id="bytes")
        good = await dispatch_many([dispatch(sleep_for, seconds=0.05) for _ in range(20)])
        sent = asyncio.get_running_loop().time()
        await fleet.until(lambda: fleet.count("done") == 20)
        assert asyncio.get_running_loop().time() - sent < 5.0
        assert set(fleet.ids("done")) == {one.id for one in good}

        await fleet.until(lambda: fleet.count("failed") == 2)
        starts = [one["at"] for one in fleet.of("start") if one["id"] == failing.id]
        gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
        assert len(starts) == 3
        assert all(1.0 <= gap < 1.6 for gap in gaps), gaps
        assert [one["kind"] for one in fleet.of("hook")] == ["ValueError"]
        await fleet.kill(worker, signal.SIGTERM)

        parked = {headers["nimbusq-id"]: (value, headers) for value, headers in await _parked(fleet, 2)}
        assert parked["bytes"][0] == b"\xff\xfe no envelope"
        assert parked["bytes"][1]["nimbusq-kind"] == "UnreadableJob"
        value, headers = parked[failing.id]
        assert json.loads(value.split(b"\n")[0])["id"] == failing.id
        assert (headers["nimbusq-attempts"], headers["nimbusq-error"]) == ("3", "ValueError: as always")
        assert "test_kafka" not in headers["nimbusq-traceback"]
        assert "kafka_worker.py" in headers["nimbusq-traceback"]
        depth = await fleet.manager.depth("work")
        assert (depth.pending, depth.delayed, depth.running) == (0, 0, 0)


async def _parked(fleet: Fleet, count: int) -> list[tuple[bytes, dict[str, str]]]:
    consumer = AIOKafkaConsumer(
        f"{fleet.prefix}.work.failed", bootstrap_servers=fleet.brokers, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        async with asyncio.timeout(10):
            records = [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()
    return [(record.value, {name: value.decode() for name, value in record.headers}) for record in records]


async def test_a_job_that_kills_its_workers_ends_without_any_store(launch: Launch) -> None:
    """Its attempts are counted in the commits of its claims; the job beside it is not held up."""
    async with launch() as fleet:
        killer = await dispatch(KillsItsWorker()).send()
        for run in range(1, 4):
            worker = await fleet.start(concurrency=1)
            await fleet.until(lambda run=run: fleet.ids("start")[killer.id] == run)
            async with asyncio.timeout(10):
                assert await worker.wait() == -signal.SIGKILL
        bystander = await dispatch(sleep_for, seconds=0.01).send()
        await fleet.start(concurrency=1)
        await fleet.until(lambda: fleet.count("done") == 1)
        await fleet.until(lambda: fleet.count("failed") == 1)
        assert [one["attempt"] for one in fleet.of("start") if one["id"] == killer.id] == [1, 2, 3]
        assert fleet.ids("done") == {bystander.id: 1}
        (failed,) = fleet.of("failed")
        assert failed["id"] == killer.id
        assert "worker was lost in run 3" in failed["error"]


async def test_delayed_jobs_run_once_and_on_time_while_workers_come_and_go(launch: Launch) -> None:
    """B17: the delay is longer than the session, and whoever has read it ahead leaves in between."""
    async with launch(session_timeout=2.0, delay_partitions=2) as fleet:
        first = await fleet.start()
        sent = [await dispatch(sleep_for, seconds=0.0).delay(6.0).send() for _ in range(20)]
        at = asyncio.get_running_loop().time()
        await fleet.start()
        await asyncio.sleep(2.0)
        await fleet.kill(first, signal.SIGTERM)
        assert fleet.count("start") == 0
        depth = await fleet.manager.depth("work")
        assert (depth.pending, depth.delayed, depth.running) == (0, 20, 0)
        await fleet.until(lambda: fleet.count("done") == 20)
        assert 5.7 < asyncio.get_running_loop().time() - at < 8.0
        assert fleet.ids("start") == dict.fromkeys((one.id for one in sent), 1)


async def test_a_stopped_worker_loses_its_job_and_cannot_settle_it(launch: Launch) -> None:
    """SIGSTOP for longer than the session: another worker runs the job; the late outcome is refused."""
    async with launch(session_timeout=2.0) as fleet:
        stalled = await fleet.start(concurrency=1)
        job = await dispatch(sleep_for, seconds=1.5).send()
        await fleet.until(lambda: fleet.count("start") == 1)
        stalled.send_signal(signal.SIGSTOP)
        await fleet.start(concurrency=1)
        await fleet.until(lambda: fleet.count("done") == 1)
        stalled.send_signal(signal.SIGCONT)
        await fleet.until(lambda: fleet.count("refused") == 1)
        assert [one["attempt"] for one in fleet.of("start")] == [1, 2]
        assert fleet.ids("done") == {job.id: 1}
        (refused,) = fleet.of("refused")
        assert refused["pid"] == stalled.pid


async def test_a_stopped_worker_gets_its_partition_back_but_not_its_job(launch: Launch) -> None:
    """Somebody else has had the partition meanwhile, has run the job and has left again."""
    async with launch(session_timeout=2.0) as fleet:
        stalled = await fleet.start(concurrency=1)
        job = await dispatch(sleep_for, seconds=1.5).send()
        await fleet.until(lambda: fleet.count("start") == 1)
        stalled.send_signal(signal.SIGSTOP)
        other = await fleet.start(concurrency=1)
        await fleet.until(lambda: fleet.count("done") == 1)
        await fleet.kill(other, signal.SIGTERM)
        stalled.send_signal(signal.SIGCONT)
        await fleet.until(lambda: fleet.count("refused") == 1)
        last = await dispatch(sleep_for, seconds=0.0).send()
        await fleet.until(lambda: fleet.count("done") == 2)
        assert fleet.ids("done") == {job.id: 1, last.id: 1}
        assert fleet.of("done")[-1]["pid"] == stalled.pid


async def test_a_long_job_goes_on_while_others_join_and_leave(launch: Launch) -> None:
    """Its partition stays where it is, and with it the window and what runs."""
    async with launch() as fleet:
        await fleet.start(concurrency=2)
        job = await dispatch(sleep_for, seconds=6.0).send()
        await fleet.until(lambda: fleet.count("start") == 1)
        second = await fleet.start(concurrency=2)
        await fleet.until(lambda: len({one["pid"] for one in fleet.of("joined")}) == 2)
        await fleet.kill(second, signal.SIGTERM)
        await fleet.until(lambda: fleet.count("done") == 1)
        assert fleet.ids("start") == fleet.ids("done") == {job.id: 1}
        assert fleet.count("joined") >= 3, "there were rebalances"


async def test_joining_and_leaving_in_good_order_starts_nothing_twice(launch: Launch) -> None:
    async with launch(partitions=4) as fleet:
        sent = await dispatch_many([dispatch(sleep_for, seconds=0.2) for _ in range(150)])
        await fleet.start(concurrency=4)
        await fleet.until(lambda: fleet.count("done") > 10)
        second = await fleet.start(concurrency=4)
        await fleet.until(lambda: len({one["pid"] for one in fleet.of("done")}) == 2)
        await fleet.kill(second, signal.SIGTERM)
        await fleet.until(lambda: fleet.count("done") >= 150, 60)
        assert fleet.ids("done") == dict.fromkeys((one.id for one in sent), 1)
        assert fleet.ids("start") == dict.fromkeys((one.id for one in sent), 1)


async def test_a_static_member_is_back_at_once(launch: Launch) -> None:
    """KIP-345: killed and started again under its instance id, without waiting for the old session's end."""
    async with launch(session_timeout=10.0, instance_id="one") as fleet:
        await dispatch(sleep_for, seconds=30.0).send()
        worker = await fleet.start(concurrency=2)
        await fleet.until(lambda: fleet.count("start") == 1)
        await fleet.kill(worker)
        at = asyncio.get_running_loop().time()
        await fleet.start(concurrency=2)
        await fleet.until(lambda: fleet.count("start") == 2)
        assert asyncio.get_running_loop().time() - at < 5.0
        assert [one["attempt"] for one in fleet.of("start")] == [1, 2]
