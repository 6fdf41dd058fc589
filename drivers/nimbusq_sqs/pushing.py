"""Pushing: all jobs are checked before the first is sent, and each that was not stored is named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from nimbusq.driver import Pushed
from nimbusq.envelope import Envelope
from nimbusq.errors import DispatchUncertain, PayloadTooLarge, StoreError, UnsupportedByDriver
from nimbusq_sqs import batches
from nimbusq_sqs.client import ReplyLost, SqsClient
from nimbusq_sqs.limits import MAX_MESSAGE, RESERVED
from nimbusq_sqs.message import Outgoing, first_message
from nimbusq_sqs.queues import Queue, Queues


async def push(
    client: SqsClient,
    queues: Queues,
    envelopes: Sequence[Envelope],
    *,
    longest_delay: int,
    group: Callable[[Envelope], str],
) -> list[Pushed]:
    """Send jobs, queue by queue; see `SqsAdapter.push` for what is raised."""
    outbox: dict[str, list[tuple[Envelope, Outgoing]]] = defaultdict(list)
    for envelope in envelopes:
        message = first_message(envelope, longest_delay=longest_delay, group=group(envelope))
        _check_size(envelope, message, MAX_MESSAGE)
        outbox[envelope.queue].append((envelope, message))
    found = {name: await queues.get(name) for name in outbox}
    for name, letters in outbox.items():
        for envelope, message in letters:
            _check_queue(envelope, message, found[name])
    unsent: dict[str, StoreError] = {}
    for name, letters in outbox.items():
        answers = await batches.send(client, found[name], [message for _, message in letters])
        for (envelope, _), answer in zip(letters, answers, strict=True):
            if answer is not None:
                unsent[envelope.id] = answer
    if unsent:
        raise _not_all_sent(unsent, len(envelopes))
    return [Pushed(envelope.id) for envelope in envelopes]


def _check_size(envelope: Envelope, message: Outgoing, limit: int) -> None:
    if message.size + RESERVED > limit:
        raise PayloadTooLarge(
            f"job {envelope.name} takes {message.size:,} bytes as an SQS message; its queue carries at most "
            f"{limit - RESERVED:,} beside what retries add. Store the data elsewhere and send a reference to it."
        )


def _check_queue(envelope: Envelope, message: Outgoing, queue: Queue) -> None:
    _check_size(envelope, message, queue.max_message)
    if queue.fifo and envelope.delay > 0:
        raise UnsupportedByDriver(
            "sqs",
            f"delays in the FIFO queue {queue.name}",
            "SQS delays such a queue as a whole only: use a standard queue.",
        )


def _not_all_sent(unsent: Mapping[str, StoreError], asked: int) -> StoreError | DispatchUncertain:
    """The error that says what became of the jobs: whatever its notes do not name is stored."""
    first = next((job_id for job_id, why in unsent.items() if isinstance(why, ReplyLost)), None)
    error: StoreError | DispatchUncertain
    if first is not None:
        error = DispatchUncertain(first)
    else:
        first = next(iter(unsent))
        error = type(unsent[first])(f"{len(unsent)} of {asked} jobs were not stored: {unsent[first]}")
    error.__cause__ = unsent[first]
    for job_id, why in unsent.items():
        state = "may be stored or not" if isinstance(why, ReplyLost) else "is not stored"
        error.add_note(f"job {job_id} {state}: {why}")
    return error
