"""The driver's settings: the URL's brokers, and ``Settings(options={"kafka_…": …})``."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final
from urllib.parse import urlsplit

from nimbusq.driver import DriverSettings
from nimbusq.errors import ConfigError

DEADLINE: Final = 5.0
"""Seconds that any one call to the brokers may take."""
MAX_POLL_INTERVAL_MS: Final = 2**31 - 1
"""The greatest that there is: a full worker does not poll, and must not leave the group for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """What a `KafkaAdapter` needs to know. Durations are seconds; field x is the option ``kafka_x``.

    topic: of the queue ``default``; the other queues' topics are named after them (see `nimbusq_kafka.topics`).
    partitions, delay_partitions, replication: of topics that this driver creates; None is the broker's default.
    create_topics: a queue's topics are created by its first push or claim where ``migrate up`` has not done it.
    delete_records: what all workers are done with is deleted from the topics, which therefore keep records for
    ever otherwise. max_body: bytes of a job on the wire. rebalance_timeout: how long the group waits for a member.
    instance_id: static membership (KIP-345): a restart within `session_timeout` gets its partitions back at once.
    client: further arguments of every aiokafka client, such as security_protocol or sasl_mechanism.
    """

    brokers: tuple[str, ...]
    topic: str = "nimbus-queue"
    group_id: str = "nimbus-queue"
    prefix: str = "nimbusq"
    partitions: int = 4
    delay_partitions: int = 1
    replication: int | None = None
    create_topics: bool = True
    delete_records: bool = True
    max_body: int = 1_000_000
    session_timeout: float = 6.0
    rebalance_timeout: float = 10.0
    instance_id: str | None = None
    client: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("partitions", "delay_partitions", "max_body", "session_timeout", "rebalance_timeout"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"kafka_{name} must be greater than 0, not {getattr(self, name)!r}.")

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> KafkaConfig:
        """``kafka://host:port,host:port``, or ``kafka+ssl://`` for TLS with the system's certificates.

        Raises ConfigError for a URL without brokers and for options that do not exist.
        """
        parts = urlsplit(url)
        brokers = tuple(broker.strip() for broker in parts.netloc.split(",") if broker.strip())
        if parts.scheme not in {"kafka", "kafka+ssl"} or not brokers or parts.path.strip("/") or parts.query:
            raise ConfigError("the kafka driver needs its brokers, for example kafka://localhost:9092.")
        if "@" in parts.netloc:
            raise ConfigError(
                "a Kafka URL takes no password: set options={'kafka_client': {'sasl_plain_username': …, …}}."
            )
        options = _options(settings)
        client = dict(options.pop("client", {}))
        if parts.scheme == "kafka+ssl":
            client = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(), **client}
        options.setdefault("instance_id", os.environ.get("KAFKA_INSTANCE_ID") or None)
        return cls(brokers=brokers, prefix=settings.prefix, client=client, **options)

    def for_client(self) -> dict[str, Any]:
        """The arguments that consumer, producer and admin client share."""
        return {
            "bootstrap_servers": list(self.brokers),
            "request_timeout_ms": int(DEADLINE * 1000),
            **self.client,
        }


def _options(settings: DriverSettings) -> dict[str, Any]:
    known = {spec.name for spec in fields(KafkaConfig)} - {"brokers", "prefix"}
    given = {name: value for name, value in settings.options.items() if name.startswith("kafka_")}
    if unknown := sorted(name for name in given if name.removeprefix("kafka_") not in known):
        raise ConfigError(
            f"the kafka driver has no option {unknown[0]!r}. It has {', '.join(f'kafka_{n}' for n in sorted(known))}."
        )
    return {name.removeprefix("kafka_"): value for name, value in given.items()}
