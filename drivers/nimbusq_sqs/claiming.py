"""From received messages to claims."""

from __future__ import annotations

from collections.abc import Sequence

from nimbusq.driver import Claim, Claimed, Ending, Lost
from nimbusq_sqs.message import Message


def claimed(messages: Sequence[Message], token: str) -> Claimed:
    """The claims of these messages.

    SQS counts receives, and a retry is one of them, so that a lost run can be told from a failed one only after
    the last: only then it is reported as lost.
    """
    claims = [_claim(message, token) for message in messages]
    lost = [
        Lost(id=claim.id, queue=claim.queue, envelope=claim.envelope, attempt=claim.attempt)
        for claim in claims
        if claim.ending is Ending.LOST
    ]
    return Claimed(claims, lost)


def _claim(message: Message, token: str) -> Claim:
    ending = _ending(message)
    attempt = message.attempt
    if ending is not None:
        attempt = min(attempt - 1, message.max_attempts)
    return Claim(
        id=message.id,
        queue=message.queue,
        envelope=message.envelope,
        attempt=attempt,
        token=token,
        releases=message.trail.releases,
        fence=message.fence,
        run_at=message.run_at,
        waited=max(0.0, message.first_received_at - message.run_at),
        ending=ending,
        receipt=message,
    )


def _ending(message: Message) -> Ending | None:
    if message.attempt > message.max_attempts:
        return Ending.LOST
    return Ending.EXPIRED if message.expired else None
