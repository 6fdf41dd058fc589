"""`nimbusq doctor` on Kafka: is anything set so that jobs could be lost, or could not be carried?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nimbusq.driver import Finding
from nimbusq_kafka.cluster import Cluster
from nimbusq_kafka.config import KafkaConfig
from nimbusq_kafka.topics import TopicNames
from nimbusq_kafka.window import HARD_LIMIT


async def check(config: KafkaConfig, names: TopicNames, cluster: Cluster) -> list[Finding]:
    """Findings on the brokers and on every topic of this program. Raises StoreUnavailable."""
    brokers = await cluster.brokers()
    findings = [Finding("ok", f"{len(brokers)} broker(s) at {', '.join(config.brokers)}")]
    findings += _broker(config, await cluster.configuration("broker", brokers[0]))
    mine = sorted(topic for topic in await cluster.topics() if _is_mine(topic, names))
    if not mine:
        return [*findings, Finding("warning", "there are no topics yet: run `nimbusq migrate up`")]
    for topic in await cluster.describe(mine):
        settings = await cluster.configuration("topic", topic["topic"])
        replicas = min(len(partition["replicas"]) for partition in topic["partitions"])
        findings += _topic(topic["topic"], settings, cluster.settings_of(topic["topic"]), replicas)
    return findings or [Finding("ok", "nothing to say")]


def _is_mine(topic: str, names: TopicNames) -> bool:
    return topic.startswith(
        (f"{names.ready('default')}.", f"{names.config.prefix}.")
    ) or topic == names.ready("default")


def _broker(config: KafkaConfig, settings: Mapping[str, str]) -> list[Finding]:
    findings = []
    if (most := _number(settings, "offset.metadata.max.bytes", HARD_LIMIT)) < HARD_LIMIT:
        findings.append(
            Finding(
                "error",
                f"offset.metadata.max.bytes is {most}: commits carry up to {HARD_LIMIT} bytes of marks",
            )
        )
    least = _number(settings, "group.min.session.timeout.ms", 0) / 1000
    if config.session_timeout < least:
        findings.append(
            Finding("error", f"kafka_session_timeout is {config.session_timeout:g} s, below {least:g} s")
        )
    minutes = _number(settings, "offsets.retention.minutes", 10_080)
    days = minutes / 1440
    findings.append(
        Finding(
            "ok",
            f"a group without workers is forgotten after {days:g} days; what its topics hold runs again then",
        )
    )
    return findings


def _topic(
    name: str, settings: Mapping[str, str], wanted: Mapping[str, str], replicas: int
) -> Sequence[Finding]:
    findings = [
        Finding("warning", f"topic {name}: {key} is {settings.get(key)}, not {value}")
        for key, value in wanted.items()
        if key != "max.message.bytes" and settings.get(key) != value
    ]
    if "max.message.bytes" in wanted:
        most = _number(settings, "max.message.bytes", 0)
        if most < int(wanted["max.message.bytes"]):
            findings.append(
                Finding(
                    "warning", f"topic {name}: max.message.bytes is {most}, not {wanted['max.message.bytes']}"
                )
            )
    if replicas < 2:
        findings.append(
            Finding("warning", f"topic {name} has one replica: its jobs are lost with its broker's disk")
        )
    elif (least := _number(settings, "min.insync.replicas", 1)) < 2:
        findings.append(
            Finding(
                "warning",
                f"topic {name}: min.insync.replicas is {least}, so that a job can be lost with one broker",
            )
        )
    return findings or [Finding("ok", f"topic {name}")]


def _number(settings: Mapping[str, str], key: str, default: int) -> int:
    try:
        return int(settings.get(key) or default)
    except ValueError:
        return default
