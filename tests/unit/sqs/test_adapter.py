"""Configuration: URLs, sessions, cleartext, missing libraries; and what the doctor says."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from nimbusq import Manager, Settings
from nimbusq.driver import Adapter, DriverSettings, Finding
from nimbusq.errors import ConfigError, MissingExtra, UnsupportedByDriver
from nimbusq_sqs import SqsAdapter
from nimbusq_sqs.client import Connection
from tests.unit.sqs.stub import Desk, StubSession, error


def from_url(url: str, **options: Any) -> SqsAdapter:
    return SqsAdapter.from_url(url, DriverSettings(options=options))


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "region"),
        [("sqs", None), ("sqs://", None), ("sqs://default", None), ("sqs://eu-west-1", "eu-west-1")],
    )
    def test_a_url_names_a_region_or_nothing(self, url: str, region: str | None) -> None:
        assert from_url(url).connection.region == region

    @pytest.mark.parametrize(
        "url", ["sqs://user:secret@host", "sqs://default/jobs", "sqs://a?b=c", "redis://default"]
    )
    def test_anything_else_is_refused_without_its_secrets(self, url: str) -> None:
        with pytest.raises(ConfigError) as caught:
            from_url(url)
        assert "secret" not in str(caught.value)

    def test_the_endpoint_comes_from_the_option_or_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SQS_ENDPOINT_URL", "http://127.0.0.1:1")
        assert from_url("sqs://default").connection.endpoint_url == "http://127.0.0.1:1"
        given = from_url("sqs://default", sqs_endpoint_url="https://sqs.example.org")
        assert given.connection.endpoint_url == "https://sqs.example.org"

    def test_the_settings_reach_the_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("QUEUE_DRIVER", "sqs")
        monkeypatch.setenv("SQS_QUEUE_URL", "https://h/1/jobs")
        monkeypatch.delenv("SQS_ENDPOINT_URL", raising=False)
        adapter = Manager(settings=Settings(prefix="shop")).adapter
        assert isinstance(adapter, SqsAdapter)
        assert adapter.addresses.of("default").url == "https://h/1/jobs"
        assert adapter.addresses.of("mail").name == "shop-mail"

    def test_jobs_do_not_leave_the_host_in_clear_text_unless_that_is_said(self) -> None:
        for local in ("http://127.0.0.1:9324", "http://localhost:4566", "http://[::1]:1"):
            SqsAdapter(endpoint_url=local)
        with pytest.raises(ConfigError, match="clear text"):
            SqsAdapter(endpoint_url="http://elasticmq:9324")
        assert SqsAdapter(endpoint_url="http://elasticmq:9324", allow_http=True).connection.cleartext
        with pytest.raises(ConfigError, match="http"):
            SqsAdapter(endpoint_url="tcp://elasticmq:9324")

    def test_a_clone_is_the_same_but_not_connected(self) -> None:
        adapter = SqsAdapter(
            {"a": "https://h/1/a"}, endpoint_url="http://127.0.0.1:1", region="eu-west-1", longest_delay=2
        )
        twin: Adapter = adapter.clone()
        assert isinstance(twin, SqsAdapter)
        assert twin.connection == adapter.connection
        assert twin.addresses == adapter.addresses
        assert twin.capabilities.exact_delay == 2
        assert twin.client is not adapter.client


class TestSessions:
    async def test_a_botocore_shaped_session_will_do(self) -> None:
        desk = Desk()
        session = SimpleNamespace(create_client=StubSession(desk.sqs).client)
        adapter = SqsAdapter(session=session, clock=desk.clock)
        await adapter.open()
        await adapter.setup(["mail"])
        await adapter.aclose()
        assert sorted(desk.sqs.queues) == ["http://stub/nimbusq-mail", "http://stub/nimbusq-mail-failed"]

    def test_another_object_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"aioboto3\.Session"):
            Connection(session=object()).factory()

    def test_without_aioboto3_the_bare_aiobotocore_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "aioboto3", None)
        make = Connection().factory()
        assert type(make.__self__).__module__ == "aiobotocore.session"  # type: ignore[attr-defined]  # a method

    def test_without_either_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "aioboto3", None)
        monkeypatch.setitem(sys.modules, "aiobotocore.session", None)
        with pytest.raises(MissingExtra, match=r"nimbusq\[sqs\]"):
            from_url("sqs://default")


class TestSetup:
    async def test_setup_may_run_twice(self, desk: Desk) -> None:
        await desk.adapter.setup(["mail", "orders.fifo"])
        made = sorted(asked["QueueName"] for asked in desk.sqs.asked("create_queue"))
        assert made == ["nimbusq-mail", "nimbusq-mail-failed", "nimbusq-orders-failed", "nimbusq-orders.fifo"]
        await desk.adapter.setup(["mail", "orders.fifo"])
        assert len(desk.sqs.asked("create_queue")) == 4
        kept = desk.sqs.asked("create_queue")[0]["Attributes"]
        assert kept == {"MessageRetentionPeriod": "1209600"}

    async def test_looking_at_a_queue_does_not_make_it(self, desk: Desk) -> None:
        (depth,) = await desk.adapter.depth(["nobody"])
        assert (depth.pending, depth.delayed, depth.running) == (0, 0, 0)
        assert desk.sqs.queues == {}


class TestTransactions:
    async def test_they_are_refused(self, desk: Desk) -> None:
        for call in (desk.adapter.push([], tx=object()), desk.adapter.settle([], tx=object())):
            with pytest.raises(UnsupportedByDriver, match="transaction"):
                await call


class TestDoctor:
    async def findings(self, **attributes: str) -> list[Finding]:
        desk = Desk(attributes=attributes)
        desk.sqs.queues = {"http://stub/nimbusq-mail": []}
        await desk.adapter.open()
        found = await desk.adapter.doctor()
        await desk.adapter.aclose()
        return list(found)

    async def test_a_healthy_queue(self) -> None:
        assert await self.findings() == [Finding("ok", "nimbusq-mail is there")]

    async def test_a_redrive_policy_that_is_quicker_than_the_attempts(self) -> None:
        policy = json.dumps({"deadLetterTargetArn": "arn", "maxReceiveCount": 3})
        _, finding = await self.findings(RedrivePolicy=policy)
        assert finding.level == "warning"
        assert "after 3 receives, before nimbusq has used up its attempts" in finding.text

    async def test_a_redrive_policy_with_room(self) -> None:
        _, finding = await self.findings(RedrivePolicy=json.dumps({"maxReceiveCount": "10"}))
        assert finding.level == "ok"
        assert "up to 8 retries" in finding.text

    async def test_limits_and_a_short_memory(self) -> None:
        _, memory, limit = await self.findings(MaximumMessageSize="262144", MessageRetentionPeriod="3600")
        assert (memory.level, limit.level) == ("warning", "ok")
        assert "longer than 1 h" in memory.text
        assert "262,144 bytes" in limit.text

    async def test_no_queue_and_no_permission(self, desk: Desk) -> None:
        (nothing,) = await desk.adapter.doctor()
        assert "nimbusq migrate up" in nothing.text
        desk.sqs.interrupt = lambda operation, asked: error(code="AccessDenied", status=403)
        (denied,) = await desk.adapter.doctor()
        assert (denied.level, "cannot be listed" in denied.text) == ("warning", True)

    async def test_a_named_queue_that_is_not_there(self) -> None:
        desk = Desk(queue_url={"mail": "http://stub/missing"})
        await desk.adapter.open()
        (finding,) = await desk.adapter.doctor()
        assert finding.level == "error"
        await desk.adapter.aclose()
