"""What all tests share: which need a server, and what happens when that server is missing.

A test that needs one asks for its fixture, or carries its marker (a whole driver suite does, by
``pytestmark``). Without the server such a test is skipped on a developer's machine and fails in CI, where
a silent skip would hide a driver that no longer works.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "a machine that others use", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("a machine that others use")

SERVERS: Mapping[str, str] = MappingProxyType(
    {
        "redis": "REDIS_URL",
        "postgres": "DATABASE_URL_POSTGRES",
        "mysql": "DATABASE_URL_MYSQL",
        "kafka": "KAFKA_BROKERS",
        "sqs": "SQS_ENDPOINT_URL",
    }
)
"""Marker and environment variable of each server, as ``scripts/services`` prints them."""

FIXTURES: Mapping[str, str] = MappingProxyType(
    {
        "redis_url": "redis",
        "postgres_url": "postgres",
        "mysql_url": "mysql",
        "kafka_brokers": "kafka",
        "sqs_endpoint": "sqs",
    }
)
"""Fixture and marker: whoever asks for the fixture has the marker."""


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, marker in FIXTURES.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, variable in SERVERS.items():
        if item.get_closest_marker(marker) and not os.environ.get(variable):
            _missing(marker, variable)


def _missing(server: str, variable: str) -> None:
    reason = f'{variable} is not set: eval "$(scripts/services start)" starts the {server} server'
    if os.environ.get("CI"):
        pytest.fail(f"{reason}. In CI a missing server is an error.", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def redis_url() -> str:
    """URL of a Redis server that tests may fill, each under a prefix of its own."""
    return os.environ[SERVERS["redis"]]


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """URL of a PostgreSQL database in which tests may create schemas."""
    return os.environ[SERVERS["postgres"]]


@pytest.fixture(scope="session")
def mysql_url() -> str:
    """URL of a MySQL or MariaDB server on which tests may create databases."""
    return os.environ[SERVERS["mysql"]]


@pytest.fixture(scope="session")
def kafka_brokers() -> str:
    """host:port of a Kafka broker."""
    return os.environ[SERVERS["kafka"]]


@pytest.fixture(scope="session")
def sqs_endpoint() -> str:
    """URL of an SQS endpoint."""
    return os.environ[SERVERS["sqs"]]
