"""Leases: the visibility timeout of each message, renewed in batches, never beyond the 12 hours of SQS."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nimbusq.clock import Clock
from nimbusq.driver import Claim, Renewal
from nimbusq_sqs import batches
from nimbusq_sqs.batches import Answer
from nimbusq_sqs.client import Refused, SqsClient
from nimbusq_sqs.limits import LAST_RENEWAL, MAX_VISIBLE_IN, whole
from nimbusq_sqs.message import Message


async def extend(client: SqsClient, clock: Clock, claims: Sequence[Claim], lease: float) -> list[Renewal]:
    """Renew leases. Raises StoreError where the server did not carry out some of them.

    The 12 hours count from the receipt, whatever is asked for later. A claim that nears them is answered as lost
    while it is still hidden, so that its run is cut before another begins.
    """
    now = clock.monotonic()
    wanted: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for claim in claims:
        message: Message = claim.receipt
        left = MAX_VISIBLE_IN - (now - message.received_at)
        if left > LAST_RENEWAL:
            wanted[message.url].append((message.handle, min(max(1, whole(lease)), int(left))))
    answers: dict[str, Answer] = {}
    for url, pairs in wanted.items():
        answers |= zip((handle for handle, _ in pairs), await batches.hide(client, url, pairs), strict=True)
    return [_renewal(claim.receipt.handle, answers) for claim in claims]


def _renewal(handle: str, answers: dict[str, Answer]) -> Renewal:
    if handle not in answers:
        return Renewal.LOST
    answer = answers[handle]
    if answer is None:
        return Renewal.RENEWED
    if isinstance(answer, Refused):
        return Renewal.LOST
    raise answer
