"""What is the sqs driver's own, on a real endpoint: hops, visibility, FIFO queues, URLs, the queue of failed jobs."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest
from aiobotocore.session import get_session

from nimbusq import Fail, Manager, Settings, Worker, current_job, dispatch, job
from nimbusq.driver import Adapter, Claim, DriverSettings, Ending, PutBack, Renewal, Retry, SettleStatus
from nimbusq.envelope import Unreadable
from nimbusq.errors import StoreUnavailable, UnsupportedByDriver
from nimbusq.testing.suite.hands import Hands, ids, queue_only
from nimbusq_sqs import SqsAdapter
from tests.drivers.sqs_env import SqsEnv, drop, fresh_prefix, new_session, opened, sqs_env

pytestmark = pytest.mark.sqs


@pytest.fixture
async def env(sqs_endpoint: str) -> AsyncIterator[SqsEnv]:
    async with sqs_env(sqs_endpoint, session=new_session()) as env:
        yield env


@pytest.fixture
def hands(env: SqsEnv) -> Hands:
    return Hands(env=cast("Any", env), adapter=env.adapter, tick=1.0)


async def until_claimed(hands: Hands, patience: float = 20.0) -> Claim:
    async with asyncio.timeout(patience):
        while not (claims := await hands.claim(wait=1.0)):
            pass
    return claims[0]


async def attributes_of(adapter: SqsAdapter, queue: str) -> Mapping[str, str]:
    name = adapter.addresses.of(queue).name
    url = (await adapter.client.call("get_queue_url", QueueName=name))["QueueUrl"]
    reply = await adapter.client.call("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
    return cast("Mapping[str, str]", reply["Attributes"])


class TestDelays:
    async def test_a_delay_of_several_hops_is_never_early(self, sqs_endpoint: str) -> None:
        async with sqs_env(sqs_endpoint, session=new_session(), longest_delay=2) as env:
            hands = Hands(env=cast("Any", env), adapter=env.adapter, tick=1.0)
            start = time.time()
            sent = await hands.push(delay=5.0)
            claim = await until_claimed(hands)
            assert 5.0 <= time.time() - start < 8.0
            assert (claim.id, claim.attempt, claim.releases) == (sent.id, 1, 0)
            assert claim.envelope == sent
            assert claim.fence == 3, "two hops were received before"
            await hands.finish(claim)
            assert await hands.is_idle()

    async def test_901_s_are_accepted(self, hands: Hands) -> None:
        await hands.push(delay=1_800.0)
        assert await hands.counts() == (0, 1, 0)


class TestVisibility:
    async def test_a_lost_run_is_counted(self, hands: Hands) -> None:
        sent = await hands.push(max_attempts=2)
        first = await hands.take(lease=1.0)
        await hands.pass_ticks(1.1)
        second = await hands.take(lease=1.0)
        assert (second.id, second.attempt, second.fence) == (sent.id, 2, first.fence + 1)
        await hands.pass_ticks(1.1)
        claimed = await hands.collect()
        (ending,), (lost,) = claimed.claims, claimed.lost
        assert (ending.ending, ending.attempt, lost.id, lost.attempt) == (Ending.LOST, 2, sent.id, 2)
        await hands.fail(ending)
        assert await hands.counts() == (0, 0, 0)

    async def test_a_stale_receipt_never_crashes(self, hands: Hands) -> None:
        await hands.push()
        stale = await hands.take(lease=1.0)
        await hands.pass_ticks(1.1)
        current = await hands.take()
        assert await hands.extend(stale) is Renewal.LOST
        for outcome in (None, Retry(1.0, "late")):
            assert (await hands.settle(stale, outcome)).status is SettleStatus.LOST
        assert await hands.extend(current) is Renewal.RENEWED
        await hands.finish(current)
        assert (await hands.settle(current)).status is SettleStatus.LOST

    async def test_ten_releases_use_up_no_attempt(self, hands: Hands) -> None:
        await hands.push(max_attempts=2)
        for _ in range(10):
            await hands.finish(await hands.take(), PutBack(0))
        claim = await hands.take()
        assert (claim.attempt, claim.releases) == (1, 10)
        await hands.finish(claim, Retry(0.0, "boom"))
        claim = await hands.take()
        assert (claim.attempt, claim.releases, claim.ending) == (2, 10, None)

    async def test_a_job_of_three_times_the_visibility_timeout_runs_once(self, env: SqsEnv) -> None:
        runs: list[int] = []

        @job(name="slow-on-sqs")
        async def slow() -> None:
            runs.append(current_job().attempt)
            await asyncio.sleep(6.5)

        async with working(env.adapter, lease=2.0) as manager:
            await dispatch(slow).send()
            async with asyncio.timeout(20):
                while (depth := await manager.depth()).running or depth.pending or not runs:
                    await asyncio.sleep(0.25)
        assert runs == [1]

    async def test_a_cancelled_poll_swallows_nothing(self, hands: Hands) -> None:
        """A poll that is really cut hides the next message for as long as it would have waited."""
        other = await hands.other()
        for _ in range(3):
            waiting = asyncio.create_task(hands.claim(wait=5.0, limit=1))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.wait([waiting])
            start = time.monotonic()
            sent = await hands.push(max_attempts=1)
            claim = await until_claimed(other, 5.0)
            assert time.monotonic() - start < 2.0
            assert (claim.id, claim.attempt, claim.ending) == (sent.id, 1, None)
            await other.finish(claim)


class TestSizes:
    async def test_ten_times_200_000_bytes_in_one_send_arrive(self, hands: Hands) -> None:
        sent = [hands.envelope(body=bytes([65 + n]) * 200_000) for n in range(10)]
        await hands.adapter.push(sent)
        claims = await hands.claim_all()
        assert {claim.id: claim.envelope for claim in claims} == {envelope.id: envelope for envelope in sent}

    @pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's, above 1 MiB
    async def test_the_greatest_job_arrives_and_can_be_put_back(self, hands: Hands) -> None:
        room = hands.adapter.capabilities.max_body
        assert room
        job_id = "i" * 36
        body = b"x" * (room - len(hands.envelope(id=job_id, body=b"").to_wire()))
        sent = await hands.push(id=job_id, body=body)
        await hands.finish(await hands.take(), PutBack(0.0))
        assert (await hands.take()).envelope == sent


class TestFifo:
    async def test_jobs_come_one_by_one_in_their_order(self, hands: Hands) -> None:
        lanes = queue_only("orders.fifo")
        sent = await hands.push_many(5, queue="orders.fifo")
        seen = []
        while claims := await hands.claim(limit=1, lanes=lanes):
            assert await hands.claim(limit=5, lanes=lanes) == [], "the group waits for its first"
            seen += ids(claims)
            await hands.finish(claims[0])
        assert seen == ids(sent)

    async def test_the_same_job_again_is_one_job(self, hands: Hands) -> None:
        sent = await hands.push(queue="orders.fifo")
        await hands.adapter.push([sent])
        assert ids(await hands.claim(lanes=queue_only("orders.fifo"))) == [sent.id]

    async def test_groups_of_ones_own_run_side_by_side(self, sqs_endpoint: str) -> None:
        by_tag = {"session": new_session(), "group": lambda envelope: envelope.tags[0]}
        async with sqs_env(sqs_endpoint, **by_tag) as env:
            hands = Hands(env=cast("Any", env), adapter=env.adapter, tick=1.0, queue="orders.fifo")
            await hands.push(tags=("a",))
            await hands.push(tags=("b",))
            assert len(await hands.claim()) == 2

    async def test_a_release_keeps_the_order_and_a_delay_is_refused(self, hands: Hands) -> None:
        lanes = queue_only("orders.fifo")
        first, second = await hands.push_many(2, queue="orders.fifo")
        await hands.finish((await hands.claim(limit=1, lanes=lanes))[0], PutBack(0.0))
        for expected in (first, second):
            (claim,) = await hands.claim(limit=1, lanes=lanes)
            assert claim.id == expected.id
            await hands.finish(claim)
        with pytest.raises(UnsupportedByDriver, match=r"FIFO queue orders\.fifo"):
            await hands.adapter.push([hands.envelope(queue="orders.fifo", delay=5.0)])


class TestQueues:
    async def test_queues_are_found_by_url_map_and_prefix(self, sqs_endpoint: str, env: SqsEnv) -> None:
        await env.adapter.setup(["mail", "mail.high"])
        names = ("mail", "mail.high")
        urls = {}
        for name in names:
            sqs_name = env.adapter.addresses.of(name).name
            urls[name] = (await env.adapter.client.call("get_queue_url", QueueName=sqs_name))["QueueUrl"]
        start = urls["mail"].removesuffix("mail")
        for given in (urls, json.dumps(urls), f"{start}*"):
            options = {"session": new_session(), "endpoint_url": sqs_endpoint}
            async with opened(SqsAdapter(given, **options)) as adapter:
                for name in names:
                    mine = Hands(env=cast("Any", env), adapter=adapter, tick=1.0, queue=name)
                    sent = await mine.push()
                    claim = await Hands(
                        env=cast("Any", env), adapter=env.adapter, tick=1.0, queue=name
                    ).take()
                    assert claim.id == sent.id
                    await mine.finish(claim)

    async def test_one_url_is_the_default_queue(self, sqs_endpoint: str, env: SqsEnv) -> None:
        await env.adapter.setup(["default"])
        name = env.adapter.addresses.of("default").name
        url = (await env.adapter.client.call("get_queue_url", QueueName=name))["QueueUrl"]
        async with opened(SqsAdapter(url, session=new_session(), endpoint_url=sqs_endpoint)) as adapter:
            mine = Hands(env=cast("Any", env), adapter=adapter, tick=1.0, queue="default")
            sent = await mine.push()
            assert (await mine.take()).id == sent.id

    async def test_setup_makes_queues_that_keep_jobs_for_14_days(self, env: SqsEnv) -> None:
        for _ in range(2):
            await env.adapter.setup(["mail"])
        found = await env.adapter.client.call("list_queues", QueueNamePrefix=env.adapter.addresses.prefix)
        assert sorted(url.rpartition("-")[2] for url in found["QueueUrls"]) == ["failed", "mail"]

    async def test_a_queue_that_was_deleted_is_made_again(self, hands: Hands, env: SqsEnv) -> None:
        await hands.push()
        await drop(env.adapter.clone(), env.adapter.addresses.prefix)
        with pytest.raises(StoreUnavailable):
            await hands.push()
        sent = await hands.push()
        assert (await hands.take()).id == sent.id

    async def test_the_doctor_warns_of_a_redrive_policy(self, env: SqsEnv) -> None:
        await env.adapter.setup(["mail"])
        arn = (await attributes_of(env.adapter, "mail-failed"))["QueueArn"]
        name = env.adapter.addresses.of("mail").name
        url = (await env.adapter.client.call("get_queue_url", QueueName=name))["QueueUrl"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
        await env.adapter.client.call(
            "set_queue_attributes", QueueUrl=url, Attributes={"RedrivePolicy": policy}
        )
        warnings = [finding.text for finding in await env.adapter.doctor() if finding.level == "warning"]
        assert len(warnings) == 1
        assert "after 2 receives" in warnings[0]

    async def test_the_bare_aiobotocore_will_do(
        self, sqs_endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        async with sqs_env(sqs_endpoint, session=get_session(), region="us-east-1") as env:
            hands = Hands(env=cast("Any", env), adapter=env.adapter, tick=1.0)
            sent = await hands.push()
            claim = await hands.take()
            assert claim.id == sent.id
            assert await hands.extend(claim) is Renewal.RENEWED
            await hands.finish(claim)

    async def test_a_server_that_is_not_there(self) -> None:
        adapter = SqsAdapter(session=new_session(), endpoint_url="http://127.0.0.1:9")
        with pytest.raises(StoreUnavailable):
            await adapter.open()


class working:  # noqa: N801  # reads as a word in `async with`
    """A running worker on an adapter, and its manager, which is current for the test."""

    def __init__(self, adapter: SqsAdapter, **options: Any) -> None:
        self._manager = Manager(cast("Adapter", adapter.clone()), settings=Settings(driver="sqs://default"))
        self._options = options

    async def __aenter__(self) -> Manager:
        await self._manager.__aenter__()
        self._worker = Worker(self._manager, "default", **self._options)
        self._task = asyncio.create_task(self._worker.run())
        return self._manager

    async def __aexit__(self, *error: object) -> None:
        self._worker.stop()
        await self._task
        await self._manager.__aexit__(None, None, None)


class TestWorker:
    async def test_failed_and_unreadable_jobs_go_to_the_queue_of_failed_ones(
        self, env: SqsEnv, hands: Hands
    ) -> None:
        @job(name="fails-on-sqs")
        async def fails() -> None:
            raise Fail("no such user")

        async with working(env.adapter) as manager:
            receipt = await dispatch(fails).send()
            await env.adapter.push_raw("default", b"{not json", job_id="by-hand")
            async with asyncio.timeout(10):
                while (await manager.depth("default-failed")).pending != 2:
                    await asyncio.sleep(0.1)
            assert (await manager.depth()).pending == 0
        claims = await hands.claim(lanes=queue_only("default-failed"))
        by_id = {claim.id: claim for claim in claims}
        assert set(by_id) == {receipt.id, "by-hand"}
        unreadable = by_id["by-hand"].envelope
        assert isinstance(unreadable, Unreadable)
        assert unreadable.raw == b"{not json"

    async def test_the_driver_runs_by_its_url_alone(
        self, sqs_endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SQS_ENDPOINT_URL", sqs_endpoint)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        ran = asyncio.Event()

        @job(name="runs-by-url")
        async def runs() -> None:
            ran.set()

        prefix = fresh_prefix()
        async with Manager(settings=Settings(driver="sqs://default", prefix=prefix)) as manager:
            receipt = await dispatch(runs).send()
            assert receipt.via == "sqs"
            assert (await manager.depth()).pending == 1
            assert await Worker(manager).run_once() == 1
            assert ran.is_set()
            with pytest.raises(UnsupportedByDriver, match="unique jobs"):
                await dispatch(runs).unique("k").send()
        settings = DriverSettings(prefix=prefix)
        await drop(SqsAdapter(session=new_session(), endpoint_url=sqs_endpoint, settings=settings), prefix)


async def test_setup_makes_the_queues_whether_opened_or_not(sqs_endpoint: str) -> None:
    settings = DriverSettings(prefix=f"t{secrets.token_hex(6)}", options={"sqs_endpoint_url": sqs_endpoint})
    adapter = SqsAdapter.from_url("sqs://default", settings)
    await adapter.setup(["default", "mail"])
    await adapter.setup(["default", "mail"])
    await adapter.open()
    try:
        assert [depth.pending for depth in await adapter.depth(["default", "mail"])] == [0, 0]
    finally:
        await adapter.aclose()
