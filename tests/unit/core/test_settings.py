"""Settings: every name of the environment, and code over environment over default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nimbusq import ConfigError, Manager, Settings
from nimbusq.limit import RateLimit


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in Settings.model_fields.values():
        for name in getattr(spec.validation_alias, "choices", []):
            monkeypatch.delenv(str(name), raising=False)


GOOD: list[tuple[str, str, str, Any]] = [
    ("QUEUE_DRIVER", "redis", "driver", "redis"),
    ("QUEUE_DRIVER", "sqlite:///jobs.db", "driver", "sqlite:///jobs.db"),
    ("QUEUE_STORE_URL", "redis://h", "store", "redis://h"),
    ("REDIS_URL", "redis://h:1/2", "redis_url", "redis://h:1/2"),
    ("DATABASE_URL", "postgresql://h/db", "database_url", "postgresql://h/db"),
    ("QUEUE_REDIS_VISIBILITY_TIMEOUT_SECONDS", "90", "redis_visibility_timeout", 90.0),
    ("QUEUE_DB_LEASE_SECONDS", "30.5", "database_lease", 30.5),
    ("NIMBUSQ_LEASE_SECONDS", "5", "lease", 5.0),
    ("QUEUE_BOOT_STRICT", "1", "strict", True),
    ("QUEUE_BOOT_STRICT", "yes", "strict", True),
    ("QUEUE_BOOT_STRICT", "true", "strict", True),
    ("QUEUE_BOOT_STRICT", "0", "strict", False),
    ("SQS_QUEUE_URL", "https://sqs/1/q", "sqs_queue_url", "https://sqs/1/q"),
    ("SQS_ENDPOINT_URL", "http://127.0.0.1:9324", "sqs_endpoint_url", "http://127.0.0.1:9324"),
    ("KAFKA_BROKERS", "a:9092, b:9092,", "kafka_brokers", ("a:9092", "b:9092")),
    ("KAFKA_TOPIC", "jobs", "kafka_topic", "jobs"),
    ("KAFKA_GROUP_ID", "workers", "kafka_group_id", "workers"),
    ("NIMBUSQ_PREFIX", "shop_1", "prefix", "shop_1"),
    ("NIMBUSQ_APP", "shop.jobs", "app", "shop.jobs"),
    ("QUEUE_RATE_LIMIT_PER_SEC", "2.5", "rate_limit_per_sec", 2.5),
    ("QUEUE_RATE_LIMIT_BURST", "3", "rate_limit_burst", 3),
    ("NIMBUSQ_MAX_BODY_BYTES", "65536", "max_body", 65536),
    ("NIMBUSQ_RESULT_TTL_SECONDS", "60", "result_ttl", 60.0),
    ("NIMBUSQ_HISTORY_LIMIT", "0", "history_limit", 0),
    ("NIMBUSQ_HISTORY_TTL_SECONDS", "60", "history_ttl", 60.0),
    ("NIMBUSQ_SHUTDOWN_TIMEOUT", "0", "shutdown_timeout", 0.0),
    ("NIMBUSQ_STALL_LIMIT_SECONDS", "9", "stall_limit", 9.0),
]

DEFAULTS = {
    "driver": "sync",
    "store": None,
    "redis_url": "redis://localhost:6379",
    "redis_visibility_timeout": 60.0,
    "database_lease": 120.0,
    "strict": False,
    "kafka_brokers": (),
    "kafka_topic": "nimbus-queue",
    "kafka_group_id": "nimbus-queue",
    "rate_limit_burst": 10,
    "prefix": "nimbusq",
    "history_limit": 10_000,
    "shutdown_timeout": 25.0,
}


@pytest.mark.parametrize(("variable", "text", "name", "value"), GOOD)
def test_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, value: Any
) -> None:
    monkeypatch.setenv(variable, text)
    assert getattr(Settings(), name) == value


def test_every_variable_is_in_the_table() -> None:
    names = {
        str(name)
        for spec in Settings.model_fields.values()
        for name in getattr(spec.validation_alias, "choices", [])
    }
    assert names == {variable for variable, *_ in GOOD}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults(name: str) -> None:
    assert getattr(Settings(), name) == DEFAULTS[name]


@pytest.mark.parametrize(("variable", "text", "name", "value"), GOOD)
def test_code_comes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, value: Any
) -> None:
    monkeypatch.setenv(variable, text)
    given = getattr(Settings.model_construct(), name, DEFAULTS.get(name))
    default = DEFAULTS.get(name, given)
    if default is not None:
        assert getattr(Settings(**{name: default}), name) == default


@pytest.mark.parametrize("variable", sorted({variable for variable, *_ in GOOD}))
def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "")
    assert Settings() == Settings.model_validate({})


BAD = [
    ("QUEUE_REDIS_VISIBILITY_TIMEOUT_SECONDS", "0"),
    ("QUEUE_REDIS_VISIBILITY_TIMEOUT_SECONDS", "-1"),
    ("QUEUE_REDIS_VISIBILITY_TIMEOUT_SECONDS", "soon"),
    ("QUEUE_DB_LEASE_SECONDS", "nan"),
    ("QUEUE_DB_LEASE_SECONDS", "inf"),
    ("NIMBUSQ_LEASE_SECONDS", "0"),
    ("QUEUE_BOOT_STRICT", "perhaps"),
    ("NIMBUSQ_PREFIX", "Shop"),
    ("NIMBUSQ_PREFIX", "a{b}"),
    ("NIMBUSQ_PREFIX", "x" * 33),
    ("QUEUE_RATE_LIMIT_PER_SEC", "0"),
    ("QUEUE_RATE_LIMIT_PER_SEC", "nan"),
    ("QUEUE_RATE_LIMIT_PER_SEC", "inf"),
    ("QUEUE_RATE_LIMIT_BURST", "0"),
    ("NIMBUSQ_MAX_BODY_BYTES", "10"),
    ("NIMBUSQ_RESULT_TTL_SECONDS", "0"),
    ("NIMBUSQ_HISTORY_LIMIT", "-1"),
    ("NIMBUSQ_SHUTDOWN_TIMEOUT", "-1"),
    ("NIMBUSQ_SHUTDOWN_TIMEOUT", "inf"),
    ("NIMBUSQ_STALL_LIMIT_SECONDS", "0"),
]


@pytest.mark.parametrize(("variable", "text"), BAD)
def test_a_bad_value_is_always_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    """CF3: the seed ignores some."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=f"the settings cannot be used: {variable}: "):
        Settings()


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(ConfigError, match="drivr"):
        Settings(drivr="redis")


def test_a_secret_is_not_repeated_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIMBUSQ_PREFIX", "Hunter2")
    with pytest.raises(ConfigError) as caught:
        Settings()
    assert "Hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("driver", "settings", "url"),
    [
        ("sync", {}, "sync"),
        ("redis", {"redis_url": "redis://h"}, "redis://h"),
        ("database", {"database_url": "sqlite:///x"}, "sqlite:///x"),
        ("kafka", {"kafka_brokers": ["a:1", "b:2"]}, "kafka://a:1,b:2"),
        ("sqs", {"sqs_endpoint_url": "http://h"}, "sqs://default"),
        ("REDIS", {"redis_url": "redis://h"}, "redis://h"),
    ],
)
def test_a_drivers_name_becomes_its_url(driver: str, settings: dict[str, Any], url: str) -> None:
    assert Settings(driver=driver, **settings).url == url


@pytest.mark.parametrize(
    ("driver", "missing"),
    [("database", "DATABASE_URL"), ("kafka", "KAFKA_BROKERS"), ("sqs", "SQS_QUEUE_URL")],
)
def test_a_driver_whose_address_is_missing(driver: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=missing):
        Manager(driver)


def test_the_lease_of_each_driver() -> None:
    settings = Settings(redis_visibility_timeout=11, database_lease=22)
    leases = {
        name: settings.lease_for(name) for name in ("redis", "sqlite", "postgresql", "mysql", "sync", "sqs")
    }
    assert leases == {"redis": 11, "sqlite": 22, "postgresql": 22, "mysql": 22, "sync": 60, "sqs": 60}
    assert Settings(lease=5).lease_for("redis") == 5


def test_rates_by_queue() -> None:
    settings = Settings(rate_limit_per_sec=5, rate_limits={"mail": RateLimit(per_second=1)})
    assert settings.rate_of("mail") == RateLimit(per_second=1, burst=1)
    assert settings.rate_of("default") == RateLimit(per_second=5, burst=10)
    assert Settings().rate_of("default") is None
    with pytest.raises(ConfigError):
        Settings(rate_limits={"a b": RateLimit(per_second=1)})


def test_no_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("QUEUE_DRIVER=redis\n")
    monkeypatch.chdir(tmp_path)
    assert "QUEUE_DRIVER" not in os.environ
    assert Settings().driver == "sync"
