"""Batched calls: split by ten and by bytes, several at once, and an answer for each entry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from nimbusq.errors import StoreError, StoreUnavailable
from nimbusq_sqs.client import Refused, ReplyLost, SqsClient
from nimbusq_sqs.limits import BATCH, MAX_BATCH
from nimbusq_sqs.message import Outgoing
from nimbusq_sqs.queues import Queue

Answer: TypeAlias = StoreError | None
"""None where the entry was carried out; Refused where it never will be."""

_IN_FLIGHT: Final = 8
"""Batches of one call that are under way at once."""
_PAUSES: Final = (0.05, 0.2)
"""Seconds before entries are tried again that the server could not carry out."""


async def send(client: SqsClient, queue: Queue, messages: Sequence[Outgoing]) -> list[Answer]:
    """Send messages to one queue; of a FIFO queue in their order, one batch after the other."""
    entries = [message.entry(fifo=queue.fifo) for message in messages]
    limit = min(queue.max_message, MAX_BATCH)
    parts = list(split([message.size for message in messages], limit))
    return await _all(
        client, "send_message_batch", queue.url, entries, parts, at_once=1 if queue.fifo else _IN_FLIGHT
    )


async def delete(client: SqsClient, url: str, handles: Sequence[str]) -> list[Answer]:
    """Delete received messages."""
    entries = [{"ReceiptHandle": handle} for handle in handles]
    return await _all(client, "delete_message_batch", url, entries, list(split([0] * len(entries), 0)))


async def hide(client: SqsClient, url: str, handles: Sequence[tuple[str, int]]) -> list[Answer]:
    """Set in how many seconds from now received messages are visible again."""
    entries = [{"ReceiptHandle": handle, "VisibilityTimeout": seconds} for handle, seconds in handles]
    parts = list(split([0] * len(entries), 0))
    return await _all(client, "change_message_visibility_batch", url, entries, parts)


def split(sizes: Sequence[int], limit: int) -> Iterator[range]:
    """Positions, in runs of at most ten whose sizes add up to at most `limit`."""
    start = total = 0
    for position, size in enumerate(sizes):
        if position - start == BATCH or (position > start and total + size > limit):
            yield range(start, position)
            start, total = position, 0
        total += size
    if start < len(sizes):
        yield range(start, len(sizes))


async def _all(
    client: SqsClient,
    operation: str,
    url: str,
    entries: Sequence[Mapping[str, Any]],
    parts: Sequence[range],
    *,
    at_once: int = _IN_FLIGHT,
) -> list[Answer]:
    gate = asyncio.Semaphore(at_once)

    async def one(part: range) -> list[Answer]:
        async with gate:
            return await _batch(client, operation, url, [entries[position] for position in part])

    if len(parts) == 1:
        return await one(parts[0])
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(part)) for part in parts]
    return [answer for task in tasks for answer in task.result()]


async def _batch(
    client: SqsClient, operation: str, url: str, entries: Sequence[Mapping[str, Any]]
) -> list[Answer]:
    """One batch, its failed entries again while that may help. An error of the whole call counts for each entry."""
    answers: list[Answer] = [None] * len(entries)
    pending = list(range(len(entries)))
    for pause in (*_PAUSES, None):
        try:
            reply = await client.call(
                operation,
                QueueUrl=url,
                Entries=[{"Id": str(position), **entries[position]} for position in pending],
            )
        except StoreError as error:
            for position in pending:
                answers[position] = error
            return answers
        answered = _answers(operation, reply)
        for position in pending:
            answers[position] = answered.get(
                position, ReplyLost(f"SQS did not say what became of a {operation}.")
            )
        pending = [position for position in pending if type(answers[position]) is StoreUnavailable]
        if not pending or pause is None:
            break
        await asyncio.sleep(pause)
    return answers


def _answers(operation: str, reply: Mapping[str, Any]) -> dict[int, Answer]:
    answers: dict[int, Answer] = {int(entry["Id"]): None for entry in reply.get("Successful", ())}
    for entry in reply.get("Failed", ()):
        code, text = entry.get("Code", ""), entry.get("Message", "")
        final = entry.get("SenderFault") and "Throttl" not in code
        kind = Refused if final else StoreUnavailable
        answers[int(entry["Id"])] = kind(f"SQS refused an entry of {operation}: {code} {text}".rstrip())
    return answers
