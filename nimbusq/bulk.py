"""Many jobs in few round trips: while the store takes one chunk, the next one is built."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from nimbusq.builder import Dispatch, as_job, not_sent
from nimbusq.building import AS_IT_IS, Asked, build, receipt_for
from nimbusq.envelope import Envelope
from nimbusq.errors import InvalidOption, NimbusqError
from nimbusq.jobs import Job
from nimbusq.manager import Manager, Sent, find_manager
from nimbusq.receipt import Receipt


class _Built(NamedTuple):
    """A job that can be sent."""

    job: Job
    asked: Asked
    envelope: Envelope


async def dispatch_many(
    jobs: Iterable[Job | Dispatch[Any]], *, manager: Manager | None = None, chunk: int = 500
) -> list[Receipt[Any]]:
    """Send many jobs, one round trip per `chunk` of them; receipts in their order.

    A job that cannot be sent has status "refused" and its `error`; the others are sent, and a duplicate answers
    with its holder. An error of the backend, or of the iterable, is raised: the chunks before it are stored.
    """
    if chunk < 1:
        raise InvalidOption(f"chunk is 1 or more, not {chunk!r}.")
    manager = manager or find_manager()
    given = (item.disarm() if isinstance(item, Dispatch) else (item, AS_IT_IS) for item in jobs)
    receipts: list[Receipt[Any]] = []
    sending: asyncio.Task[list[Receipt[Any]]] | None = None
    try:
        if manager is None:
            return [not_sent() for _ in given]
        while built := [_build(item, asked, manager) for item, asked in islice(given, chunk)]:
            if sending is not None:
                receipts += await sending
            sending = asyncio.create_task(_send(built, manager))
            await asyncio.sleep(0)  # it is on its way before the next chunk keeps this loop busy
        if sending is not None:
            receipts += await sending
    except BaseException:
        await _let_go(jobs, sending)
        raise
    return receipts


async def _let_go(jobs: Iterable[object], sending: asyncio.Task[Any] | None) -> None:
    """Let the call under way end, and no builder warn of what the caller is about to be told."""
    if sending is not None:
        await asyncio.wait({sending})
        if not sending.cancelled():
            sending.exception()
    if isinstance(jobs, Sequence):
        for item in jobs:
            if isinstance(item, Dispatch):
                item.disarm()


def _build(item: object, asked: Asked, manager: Manager) -> _Built | NimbusqError | TypeError:
    """The job with its envelope, or why it cannot be sent."""
    try:
        if asked.tx is not None:
            raise InvalidOption(
                "dispatch_many sends outside any transaction: send() each job that has using()."
            )
        job = as_job(item)
        envelope = build(job, asked, manager)
        manager.check_size(envelope)
        manager.route.of(envelope)
    except (NimbusqError, TypeError) as error:
        return error
    return _Built(job, asked, envelope)


async def _send(built: Sequence[_Built | NimbusqError | TypeError], manager: Manager) -> list[Receipt[Any]]:
    envelopes = [one.envelope for one in built if isinstance(one, _Built)]
    sent = await manager.push(envelopes) if envelopes else Sent([])
    answers = iter(sent.answers)
    return [
        receipt_for(*one, next(answers), sent, manager, raising=False)
        if isinstance(one, _Built)
        else Receipt(id="", status="refused", error=one)
        for one in built
    ]
