"""What Kafka cannot do is said, not done badly; and what it does in its own way is done."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from nimbusq.driver import (
    Claim,
    Done,
    DriverSettings,
    Ending,
    Failed,
    FailedRecord,
    Lane,
    PutBack,
    Renewal,
    Retry,
    Settlement,
    SettleStatus,
    Stores,
    Want,
    lacking,
)
from nimbusq.envelope import Envelope, Rate, Unreadable
from nimbusq.errors import (
    InvalidName,
    PayloadTooLarge,
    SchemaMismatch,
    StoreUnavailable,
    UnsupportedByDriver,
)
from nimbusq_kafka import KafkaAdapter
from nimbusq_kafka import janitor as janitor_module
from nimbusq_kafka.hands import Stage
from tests.drivers.kafka_env import OPTIONS, KafkaEnv, drop, fresh_prefix, kafka_env, opened

pytestmark = pytest.mark.kafka


@pytest.fixture
async def env(kafka_brokers: str) -> AsyncIterator[KafkaEnv]:
    async with kafka_env(kafka_brokers, "q") as env:
        yield env


def job(**fields: Any) -> Envelope:
    return Envelope(**{"id": secrets.token_hex(8), "name": "Probe", "queue": "q", **fields})


def want(limit: int = 10, wait: float = 10.0, **fields: Any) -> Want:
    lanes = fields.pop("lanes", (Lane(queue="q", limit=max(limit, 1)),))
    return Want(token=secrets.token_hex(16), limit=limit, lease=60.0, wait=wait, lanes=lanes, **fields)


async def take(adapter: KafkaAdapter, **fields: Any) -> Claim:
    (claim,) = (await adapter.claim(want(**fields))).claims
    return claim


async def settle(adapter: KafkaAdapter, claim: Claim, outcome: Any = None, **fields: Any) -> SettleStatus:
    settlement = Settlement(claim=claim, outcome=outcome or Done(), **fields)
    return (await adapter.settle([settlement]))[0].status


def failed_record(claim: Claim) -> FailedRecord:
    return FailedRecord(
        id=claim.id,
        queue=claim.queue,
        name="Probe",
        wire=b"wire",
        error="boom",
        kind="ValueError",
        attempts=1,
    )


# --- limits --------------------------------------------------------------------------------------------------


def test_the_record_of_what_it_can_do() -> None:
    adapter = KafkaAdapter.from_url("kafka://a", DriverSettings())
    c = adapter.capabilities
    assert (c.driver, c.durable, c.lease, c.fenced) == ("kafka", True, "session", True)
    assert (c.atomic, c.transactional, c.priorities, c.cancellable) == (False, False, False, False)
    assert (c.max_delay, c.max_lease, c.max_body) == (None, None, 1_000_000)
    assert adapter.stores == Stores()
    assert lacking(job(delay=1e9, expires_in=5.0, timeout=1.0), c) == ()
    assert [need.name for need in lacking(job(priority=1), c, tx=True)] == [
        "priorities",
        "dispatch in a transaction",
    ]


async def test_transactions_and_shared_rates_are_refused(env: KafkaEnv) -> None:
    adapter = env.adapter
    with pytest.raises(UnsupportedByDriver, match="kafka driver cannot do dispatch in a transaction"):
        await adapter.push([job()], tx=object())
    with pytest.raises(UnsupportedByDriver, match="completion in a transaction"):
        await adapter.settle([], tx=object())
    lane = Lane(queue="q", limit=1, rate=Rate(key="q", per_second=1.0))
    with pytest.raises(UnsupportedByDriver, match=r"rate limits.*QUEUE_STORE_URL"):
        await adapter.claim(want(lanes=(lane,)))


async def test_a_queue_named_like_a_topic_beside_another_is_refused(env: KafkaEnv) -> None:
    with pytest.raises(InvalidName, match=r"mail\.failed"):
        await env.adapter.push([job(queue="mail.failed")])


async def test_a_body_of_the_greatest_size_arrives_and_one_far_above_is_refused(env: KafkaEnv) -> None:
    sent = job(body=b"x" * 999_000)
    await env.adapter.push([sent])
    assert (await take(env.adapter)).envelope == sent
    with pytest.raises(PayloadTooLarge, match="size"):
        await env.adapter.push([job(body=b"x" * 1_200_000)])


async def test_topics_are_not_created_where_that_is_not_wanted(kafka_brokers: str) -> None:
    options = {**OPTIONS, "kafka_create_topics": False}
    settings = DriverSettings(prefix=fresh_prefix(), options=options)
    try:
        async with opened(KafkaAdapter.from_url(f"kafka://{kafka_brokers}", settings)) as adapter:
            with pytest.raises(SchemaMismatch, match="nimbusq migrate up"):
                await adapter.push([job()])
            with pytest.raises(SchemaMismatch, match="nimbusq migrate up"):
                await adapter.claim(want())
            await asyncio.gather(adapter.setup(["q"]), adapter.setup(["q"]))
            await adapter.push([job()])
            await take(adapter)
    finally:
        await drop(kafka_brokers, settings.prefix)


async def test_a_broker_that_is_not_there() -> None:
    adapter = KafkaAdapter.from_url("kafka://127.0.0.1:9", DriverSettings())
    with pytest.raises(StoreUnavailable, match="connecting"):
        await adapter.open()
    for call in (adapter.claim(want()), adapter.push([job()]), adapter.depth(["q"]), adapter.doctor()):
        with pytest.raises(StoreUnavailable):
            await call
    await adapter.aclose()


# --- leases --------------------------------------------------------------------------------------------------


async def test_a_claim_is_held_until_it_is_settled(env: KafkaEnv) -> None:
    await env.adapter.push([job()])
    claim = await take(env.adapter)
    clone = env.adapter.clone()
    for adapter in (env.adapter, clone):
        assert await adapter.extend([claim, claim._replace(token="forged")], lease=1.0) == [
            Renewal.RENEWED,
            Renewal.LOST,
        ]
    assert await settle(clone, claim) is SettleStatus.SETTLED
    assert await env.adapter.extend([claim], lease=1.0) == [Renewal.LOST]
    await clone.aclose()
    assert not (await env.adapter.claim(want(wait=0.0))).claims
    assert env.adapter._membership.current is not None, "the clone did not end the membership"


async def test_the_same_call_again_answers_the_same_claims(env: KafkaEnv) -> None:
    await env.adapter.push([job(), job()])
    call = want(limit=2)
    first = list((await env.adapter.claim(call)).claims)
    again = list((await env.adapter.claim(call)).claims)
    assert again == first


async def test_claims_that_arrive_when_their_caller_is_cancelled_are_handed_back(env: KafkaEnv) -> None:
    """They were committed and on their way from the session's thread to a loop that was busy."""
    await env.adapter.push([job(delay=0.3)])
    claiming = asyncio.create_task(env.adapter.claim(want()))
    await asyncio.sleep(0.1)
    session = env.adapter._membership.current
    assert session is not None
    until = time.monotonic() + 5.0
    while not session._hands.at(Stage.RUNNING):
        assert time.monotonic() < until
        time.sleep(0.01)  # noqa: ASYNC251 - the loop must not see the answer before the cancel
    claiming.cancel()
    assert isinstance((await asyncio.gather(claiming, return_exceptions=True))[0], asyncio.CancelledError)
    again = await take(env.adapter)
    assert (again.attempt, again.reclaimed) == (1, False)


async def test_what_a_member_leaves_behind_counts_and_comes_back(env: KafkaEnv) -> None:
    sent = [job(), job(max_attempts=1)]
    await env.adapter.push(sent)
    first = list((await env.adapter.claim(want(limit=2))).claims)
    if len(first) < 2:
        first += (await env.adapter.claim(want(limit=1))).claims
    await env.adapter.aclose()
    other = await env.second()
    claimed = await other.claim(want())
    again = {claim.id: claim for claim in claimed.claims}
    assert {(one.id, one.attempt) for one in claimed.lost} == {(one.id, 1) for one in sent}
    assert (again[sent[0].id].attempt, again[sent[0].id].reclaimed, again[sent[0].id].fence) == (2, True, 2)
    ending = again[sent[1].id]
    assert (ending.ending, ending.attempt, ending.fence) == (Ending.LOST, 1, 2)
    assert await settle(other, ending, Failed("lost"), failed=failed_record(ending)) is SettleStatus.SETTLED
    assert [await settle(env.adapter, claim) for claim in first] == [SettleStatus.LOST] * 2


async def test_a_full_worker_hears_of_lost_runs_and_gets_those_that_may_not_run_again(env: KafkaEnv) -> None:
    sent = [job(), job(max_attempts=1), job()]
    await env.adapter.push(sent[:2])
    taken = 0
    while taken < 2:
        taken += len((await env.adapter.claim(want())).claims)
    await env.adapter.aclose()
    other = await env.second()
    await other.push(sent[2:])
    async with asyncio.timeout(15):
        while not (claimed := await other.claim(want(limit=0, wait=0.0))).lost:
            await asyncio.sleep(0.05)
    assert {one.id for one in claimed.lost} == {one.id for one in sent[:2]}
    assert [(one.id, one.ending) for one in claimed.claims] == [(sent[1].id, Ending.LOST)]
    (depth,) = await other.depth(["q"])
    assert (depth.pending, depth.running) == (2, 1)


async def test_a_job_that_expired_while_it_waited_is_handed_out_to_be_ended(env: KafkaEnv) -> None:
    await env.adapter.push([job(expires_in=0.2), job(expires_in=60.0), job(delay=0.3, expires_in=0.2)])
    await asyncio.sleep(0.4)
    found: list[Claim] = []
    while len(found) < 3:
        found += (await env.adapter.claim(want())).claims
    assert sorted(str(claim.ending) for claim in found) == ["Ending.EXPIRED", "Ending.EXPIRED", "None"]
    assert {claim.attempt for claim in found if claim.ending} == {0}
    again = next(claim for claim in found if claim.ending)
    assert await settle(env.adapter, again, PutBack(0.0, counted=False)) is SettleStatus.SETTLED
    back = await take(env.adapter)
    assert (back.id, back.ending, back.attempt) == (again.id, Ending.EXPIRED, 0)


async def test_counters_survive_any_number_of_retries_and_releases(env: KafkaEnv) -> None:
    await env.adapter.push([job(max_attempts=9)])
    seen = []
    for outcome in (
        Retry(0.0, "a"),
        PutBack(0.0),
        PutBack(0.05, counted=False),
        Retry(0.05, "b"),
        PutBack(0.0),
    ):
        claim = await take(env.adapter)
        seen.append((claim.attempt, claim.releases, claim.fence))
        await settle(env.adapter, claim, outcome)
    claim = await take(env.adapter)
    assert [*seen, (claim.attempt, claim.releases, claim.fence)] == [
        (1, 0, 1),
        (2, 0, 2),
        (2, 1, 3),
        (2, 1, 4),
        (3, 1, 5),
        (3, 2, 6),
    ]


async def test_a_run_whose_worker_gave_up_settling_counts_as_lost(
    env: KafkaEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was away for longer than the worker tries, and the membership survived."""
    monkeypatch.setattr(janitor_module, "_SETTLING", 0.0)
    await env.adapter.push([job()])
    claim = await take(env.adapter)
    session = env.adapter._membership.current
    parts = session._parts
    parts.hands.find(claim).tried_at = 0.0
    session._tell(lambda parts: parts.janitor._take_back())
    again = await take(env.adapter)
    assert (again.id, again.attempt, again.reclaimed) == (claim.id, 2, True)
    assert await settle(env.adapter, claim) is SettleStatus.LOST


# --- records -------------------------------------------------------------------------------------------------


async def records_of(brokers: str, topic: str, count: int) -> list[Any]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=brokers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(10):
            return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


async def test_a_failed_job_is_parked_only_with_its_record(env: KafkaEnv, kafka_brokers: str) -> None:
    """Where a store keeps the record, core leaves it out of the settlement."""
    await env.adapter.push([job(id="kept elsewhere")])
    await settle(env.adapter, await take(env.adapter), Failed("boom"))
    await env.adapter.push([job(id="parked")])
    claim = await take(env.adapter)
    await settle(env.adapter, claim, Failed("boom"), failed=failed_record(claim))
    topic = f"{env.adapter._config.prefix}.q.failed"
    (record,) = await records_of(kafka_brokers, topic, 1)
    assert dict(record.headers)["nimbusq-id"] == b"parked"
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka_brokers)
    await consumer.start()
    place = TopicPartition(topic, 0)
    assert await consumer.end_offsets([place]) == {place: 1}
    await consumer.stop()


async def test_what_follows_is_written_before_the_claim_is_done(env: KafkaEnv) -> None:
    await env.adapter.push([job()])
    follow = (job(queue="new"), job(delay=0.2))
    assert await settle(env.adapter, await take(env.adapter), push=follow) is SettleStatus.SETTLED
    lanes = (Lane(queue="new", limit=1), Lane(queue="q", limit=1))
    found: set[str] = set()
    while len(found) < 2:
        found |= {claim.id for claim in (await env.adapter.claim(want(lanes=lanes))).claims}
    assert found == {one.id for one in follow}


async def test_records_of_other_programs_are_claimed_like_bytes_that_are_no_job(
    env: KafkaEnv, kafka_brokers: str
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka_brokers)
    await producer.start()
    topic = f"{env.adapter._config.prefix}.q"
    await producer.send_and_wait(topic, None, key=b"tombstone")
    headers = [("nimbusq-attempts", b"-7"), ("other", b""), ("nimbusq-run-at", b"soon")]
    await producer.send_and_wait(topic, b"\x00hello", headers=headers)
    await producer.stop()
    found: list[Claim] = []
    while len(found) < 2:
        found += (await env.adapter.claim(want())).claims
    assert [claim.envelope.raw for claim in found if isinstance(claim.envelope, Unreadable)] == [
        b"",
        b"\x00hello",
    ]
    assert [claim.id for claim in found] == [f"{topic}-0-1", f"{topic}-0-2"]
    assert {claim.attempt for claim in found} == {1}
    assert [await settle(env.adapter, claim) for claim in found] == [SettleStatus.SETTLED] * 2


async def test_gaps_in_the_offsets_hold_nothing_up(env: KafkaEnv, kafka_brokers: str) -> None:
    """A transaction leaves marks between the records, which no consumer ever sees."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka_brokers, transactional_id=secrets.token_hex(4))
    await producer.start()
    sent = [job() for _ in range(3)]
    for one in sent:
        async with producer.transaction():
            await producer.send_and_wait(f"{env.adapter._config.prefix}.q", one.to_wire())
    await producer.stop()
    found: list[Claim] = []
    while len(found) < 3:
        found += (await env.adapter.claim(want())).claims
    await env.adapter.settle([Settlement(claim=claim, outcome=Done()) for claim in found])
    await env.adapter.push([job()])
    await settle(env.adapter, await take(env.adapter))
    partition = env.adapter._membership.current._parts.member.ready_partitions("q")[0]
    assert partition.window.base == partition.seen == 8


async def test_records_that_all_are_done_with_are_deleted(env: KafkaEnv, kafka_brokers: str) -> None:
    await env.adapter.push([job() for _ in range(10)])
    found: list[Claim] = []
    while len(found) < 10:
        found += (await env.adapter.claim(want())).claims
    late, *others = sorted(found, key=lambda claim: -claim.receipt.offset)
    await env.adapter.settle([Settlement(claim=claim, outcome=Done()) for claim in others])
    session = env.adapter._membership.current
    await session._call(lambda parts: parts.janitor._delete_records())
    place = TopicPartition(f"{env.adapter._config.prefix}.q", 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka_brokers)
    await consumer.start()
    assert await consumer.beginning_offsets([place]) == {place: late.receipt.offset}
    await consumer.stop()
    await env.adapter.aclose()
    claim = await take(await env.second())
    assert (claim.id, claim.attempt) == (late.id, 2)


# --- membership ----------------------------------------------------------------------------------------------


async def test_programs_under_other_prefixes_never_meet(env: KafkaEnv, kafka_brokers: str) -> None:
    async with kafka_env(kafka_brokers, "q") as other:
        await env.adapter.push([job()])
        assert not (await other.adapter.claim(want(wait=0.3))).claims
        assert len((await env.adapter.claim(want())).claims) == 1


async def test_a_queue_that_nobody_claims_from_any_more_is_left_to_others(
    kafka_brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor_module, "_PATIENCE", 0.0)
    async with kafka_env(kafka_brokers, "q", joined=False) as env:
        lanes = (Lane(queue="q", limit=1), Lane(queue="other", limit=1))
        await env.adapter.claim(replace(want(wait=0.5, lanes=lanes), lease=0.01))
        session = env.adapter._membership.current
        assert session is not None
        member = session._parts.member
        assert member.queues == {"q", "other"}
        await env.adapter.claim(want(wait=0.0))
        assert await session._call(lambda parts: parts.janitor._leave_queues())
        assert member.queues == {"q"}
        two_leases_later = time.monotonic() + 121.0
        monkeypatch.setattr(janitor_module, "time", SimpleNamespace(monotonic=lambda: two_leases_later))
        assert not await session._call(lambda parts: parts.janitor._leave_queues()), "the session may end"


async def test_a_session_that_ended_is_followed_by_another(env: KafkaEnv) -> None:
    await env.adapter.push([job(id="first")])
    claim = await take(env.adapter)
    before = env.adapter._membership.current
    before._tell(lambda parts: parts.stop.set())
    while not before.over:
        await asyncio.sleep(0.01)
    assert await settle(env.adapter, claim) is SettleStatus.LOST
    again = await take(env.adapter)
    assert (again.id, again.attempt) == ("first", 2)
    assert env.adapter._membership.current is not before


async def test_the_doctor_sees_what_is_not_as_it_should_be(kafka_brokers: str) -> None:
    async with kafka_env(kafka_brokers, "q", joined=False) as env:
        findings = await env.adapter.doctor()
        assert {one.level for one in findings} == {"ok", "warning"}
        texts = [one.text for one in findings if one.level == "warning"]
        assert len(texts) == 7, texts
        assert all("one replica" in text for text in texts), "topics are as they were created"
    async with kafka_env(kafka_brokers, joined=False) as env:
        texts = [one.text for one in await env.adapter.doctor()]
        assert any("clock" in text or "migrate up" in text for text in texts)
