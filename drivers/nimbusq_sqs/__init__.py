"""The sqs driver: Amazon SQS, its visibility timeout as the lease."""

from nimbusq_sqs.adapter import SqsAdapter

__all__ = ["SqsAdapter"]
