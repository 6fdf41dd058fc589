"""Kafka's errors in the driver's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiokafka import errors as kafka

from nimbusq.errors import NimbusqError, PayloadTooLarge, StoreError, StoreFull, StoreUnavailable

TROUBLES: Final = (kafka.KafkaError, OSError, TimeoutError)
"""What a client call may raise because of the brokers or the way to them."""

_REFUSED: Final = (
    kafka.TopicAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.ClusterAuthorizationFailedError,
    kafka.AuthenticationFailedError,
    kafka.SaslAuthenticationFailed,
    kafka.PolicyViolationError,
    kafka.InvalidTopicError,
    kafka.InvalidConfigurationError,
    kafka.InvalidReplicationFactorError,
)
_TOO_LARGE: Final = (kafka.MessageSizeTooLargeError, kafka.RecordListTooLargeError)


class CommitRefused(StoreUnavailable):
    """The group has rebalanced: this member's generation may not commit any more."""


def is_refusal(error: BaseException) -> bool:
    """The brokers have surely not stored the record."""
    return isinstance(error, (*_REFUSED, *_TOO_LARGE, kafka.KafkaStorageError, kafka.NotEnoughReplicasError))


def translated(error: BaseException, doing: str) -> NimbusqError:
    """The error of nimbusq's tree for one of `TROUBLES`; to be raised from it."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, _TOO_LARGE):
        return PayloadTooLarge(f"Kafka does not take a record of that size ({doing}): {text}")
    if isinstance(error, kafka.KafkaStorageError):
        return StoreFull(f"Kafka cannot write to its disk ({doing}): {text}")
    if isinstance(error, _REFUSED):
        return StoreError(f"Kafka refuses ({doing}): {text}")
    if isinstance(error, TimeoutError | kafka.KafkaTimeoutError | kafka.RequestTimedOutError):
        return StoreUnavailable(f"Kafka did not answer in time ({doing}).")
    return StoreUnavailable(f"Kafka cannot be reached, or is not ready ({doing}): {text}")


@contextmanager
def translating(doing: str) -> Iterator[None]:
    """Raise the body's troubles as errors of nimbusq's tree."""
    try:
        yield
    except TROUBLES as error:
        raise translated(error, doing) from error
