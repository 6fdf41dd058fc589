"""The kafka driver: a topic a queue, claimed by a consumer group; see docs/drivers/kafka.md."""

from nimbusq_kafka.adapter import KafkaAdapter

__all__ = ["KafkaAdapter"]
