"""Many jobs in few round trips: while the store takes one chunk, the next one is built."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from nimbusq.builder import Dispatch, as_job, not_sent
from nimbusq.building import AS_IT_IS, Asked, build, receipt_for
from nimbusq.envelope import Envelope
from nimbusq.errors import InvalidOption, NimbusqError
from nimbusq.ids import new_ids
from nimbusq.jobs import Job
from nimbusq.manager import Manager, Sent, find_manager
from nimbusq.receipt import Receipt

_TURN: Final = 50
"""Jobs that are built in one go: about half a millisecond."""


_Refusal = NimbusqError | TypeError


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
        while built := await _build_some(islice(given, chunk), manager):
            if sending is not None:
                receipts += await sending
            sending = asyncio.create_task(_send(built, manager))
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


async def _build_some(given: Iterable[tuple[object, Asked]], manager: Manager) -> list[_Built | _Refusal]:
    """Now and then the loop has its turn: for the chunk before, which may not be on its way yet, and for others."""
    built: list[_Built | _Refusal] = []
    while turn := list(islice(given, _TURN)):
        await asyncio.sleep(0)
        ids = new_ids(len(turn))
        built += [_build(item, asked, manager, one) for (item, asked), one in zip(turn, ids, strict=True)]
    return built


def _build(item: object, asked: Asked, manager: Manager, job_id: str) -> _Built | _Refusal:
    """The job with its envelope, or why it cannot be sent."""
    try:
        if asked.tx is not None:
            raise InvalidOption(
                "dispatch_many sends outside any transaction: send() each job that has using()."
            )
        job = as_job(item)
        envelope = build(job, asked, manager, job_id=job_id)
        manager.check_size(envelope)
        manager.route.of(envelope)
    except (NimbusqError, TypeError) as error:
        return error
    return _Built(job, asked, envelope)


async def _send(built: Sequence[_Built | _Refusal], manager: Manager) -> list[Receipt[Any]]:
    envelopes = [one.envelope for one in built if isinstance(one, _Built)]
    sent = await manager.push(envelopes) if envelopes else Sent([])
    answers = iter(sent.answers)
    return [
        receipt_for(*one, next(answers), sent, manager, raising=False)
        if isinstance(one, _Built)
        else Receipt(id="", status="refused", error=one)
        for one in built
    ]
