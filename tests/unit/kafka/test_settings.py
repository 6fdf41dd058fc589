"""URLs, options and the names of topics."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from nimbusq.driver import DriverSettings
from nimbusq.errors import ConfigError, InvalidName
from nimbusq_kafka import KafkaAdapter
from nimbusq_kafka.config import KafkaConfig
from nimbusq_kafka.topics import DELAYS, TopicNames, delay_class


def config(url: str = "kafka://a:9092", prefix: str = "nimbusq", **options: Any) -> KafkaConfig:
    return KafkaConfig.from_url(url, DriverSettings(prefix=prefix, options=options))


def test_brokers_stand_in_the_url() -> None:
    assert config("kafka://a:9092,b:9093").brokers == ("a:9092", "b:9093")
    assert config("kafka://a:9092").for_client()["bootstrap_servers"] == ["a:9092"]


@pytest.mark.parametrize(
    "url", ["kafka://", "kafka:", "kafka", "kafka:///topic", "kafka://a/topic", "kafka://a?x=1"]
)
def test_a_url_without_brokers_or_with_more_than_them_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="kafka://localhost:9092"):
        config(url)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="kafka_client") as refusal:
        config("kafka://me:secret@a:9092")
    assert "secret" not in str(refusal.value)


def test_tls_has_a_scheme_and_everything_else_is_handed_to_the_client() -> None:
    arguments = config("kafka+ssl://a:9093", kafka_client={"sasl_mechanism": "PLAIN"}).for_client()
    assert arguments["security_protocol"] == "SSL"
    assert arguments["sasl_mechanism"] == "PLAIN"
    context = arguments["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    overridden = config("kafka+ssl://a:9093", kafka_client={"security_protocol": "SASL_SSL"}).for_client()
    assert overridden["security_protocol"] == "SASL_SSL"


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'kafka_partition'.*kafka_partitions"):
        config(kafka_partition=3)
    assert config(sqs_queue_url="x", strict=False).partitions == 4


@pytest.mark.parametrize("name", ["partitions", "delay_partitions", "max_body", "session_timeout"])
def test_numbers_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=f"kafka_{name}"):
        config(**{f"kafka_{name}": 0})


def test_the_instance_id_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config().instance_id is None
    monkeypatch.setenv("KAFKA_INSTANCE_ID", "worker-0")
    assert config().instance_id == "worker-0"
    assert config(kafka_instance_id="worker-1").instance_id == "worker-1"


def test_the_largest_body_is_a_capability() -> None:
    adapter = KafkaAdapter.from_url("kafka://a", DriverSettings(options={"kafka_max_body": 5_000}))
    assert adapter.capabilities.max_body == 5_000
    assert KafkaAdapter.from_url("kafka://a", DriverSettings()).capabilities.max_body == 1_000_000


def test_the_default_prefix_keeps_the_names_that_were_set() -> None:
    names = TopicNames(config(kafka_topic="jobs", kafka_group_id="workers"))
    assert (names.group, names.ready("default"), names.ready("mail")) == ("workers", "jobs", "nimbusq.mail")
    assert names.failed("default") == "jobs.failed"
    assert names.delayed("mail", DELAYS[0]) == "nimbusq.mail.delay.1m"


def test_another_prefix_begins_every_name() -> None:
    names = TopicNames(config(prefix="shop", kafka_topic="jobs", kafka_group_id="workers"))
    topics = {
        names.ready("default"),
        names.failed("default"),
        names.clock,
        *names.consumed(["default", "mail"]),
    }
    assert names.ready("default") == "shop.default"
    assert all(name.startswith("shop.") for name in {*topics, names.group})


@pytest.mark.parametrize("queue", ["mail.failed", "mail.delay.1m", "mail.delay.long", "a.b.delay.1d"])
def test_a_queue_cannot_take_the_name_of_a_topic_beside_another_queue(queue: str) -> None:
    with pytest.raises(InvalidName, match="kafka"):
        TopicNames(config()).ready(queue)


@pytest.mark.parametrize("queue", ["failed", "mail.delayed", "mail.delay.2m", "delay.1m"])
def test_other_names_are_free(queue: str) -> None:
    assert TopicNames(config()).ready(queue) == f"nimbusq.{queue}"


@pytest.mark.parametrize(
    ("delay", "name"),
    [
        (0.1, "1m"),
        (60.0, "1m"),
        (60.1, "1h"),
        (3600.0, "1h"),
        (86_400.0, "1d"),
        (86_401.0, "long"),
        (1e10, "long"),
    ],
)
def test_delays_are_sorted_by_length(delay: float, name: str) -> None:
    assert delay_class(delay).name == name
    assert TopicNames(config()).for_delay("q", delay) == f"nimbusq.q.delay.{name}"


def test_no_delay_is_no_delay_topic() -> None:
    assert TopicNames(config()).for_delay("q", 0.0) == "nimbusq.q"


def test_what_workers_read() -> None:
    consumed = TopicNames(config()).consumed(["mail"])
    assert consumed["nimbusq.mail"] == ("mail", None)
    assert {delay.name for _, delay in consumed.values() if delay} == {"1m", "1h", "1d", "long"}
    assert "nimbusq.mail.failed" not in consumed
