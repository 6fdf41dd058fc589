"""Many jobs in few round trips: while the store takes one chunk, the next one is built."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias, cast

from nimbusq.builder import Dispatch, as_job, not_sent
from nimbusq.building import AS_IT_IS, Asked, Kind, build, kind_of, receipt_for
from nimbusq.driver import Pushed
from nimbusq.envelope import Envelope
from nimbusq.errors import InvalidOption, NimbusqError
from nimbusq.ids import new_ids
from nimbusq.jobs import Job
from nimbusq.manager import Manager, Sent, find_manager
from nimbusq.receipt import Receipt

_TURN: Final = 50
"""Jobs that are built in one go: about half a millisecond."""


_Refusal: TypeAlias = NimbusqError | TypeError
_Kinds: TypeAlias = dict[type, Kind]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Single:
    """A job that can be sent and has a receipt of its own."""

    job: Job
    asked: Asked
    envelope: Envelope

    def receipt(self, answer: Pushed, sent: Sent, manager: Manager) -> Receipt[Any]:
        return receipt_for(self.job, self.asked, self.envelope, answer, sent, manager, raising=False)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Jobs of one call of the store. origins: of every job in its order, what its receipt is made from; envelopes: of
    those that can be sent."""

    origins: list[Kind | _Single | _Refusal] = field(default_factory=list)
    envelopes: list[Envelope] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Sending:
    """A chunk that is on its way."""

    chunk: _Chunk
    task: asyncio.Task[Sent]

    def receipts(self, manager: Manager) -> list[Receipt[Any]]:
        """In the order of its jobs, once it is stored."""
        sent = self.task.result()
        answers = iter(sent.answers)
        receipts: list[Receipt[Any]] = []
        for origin in self.chunk.origins:
            if isinstance(origin, Kind):
                receipts.append(origin.receipt(next(answers).id, sent.ended))
            elif isinstance(origin, _Single):
                receipts.append(origin.receipt(next(answers), sent, manager))
            else:
                receipts.append(Receipt(id="", status="refused", error=origin))
        return receipts


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
    items = iter(jobs)
    receipts: list[Receipt[Any]] = []
    sending: _Sending | None = None
    kinds: _Kinds = {}
    try:
        if manager is None:
            return [not_sent() for _ in map(_opened, items)]
        while (built := await _build_some(islice(items, chunk), manager, kinds)).origins:
            before, sending = sending, await _after(sending, built, manager)
            if before is not None:
                await asyncio.sleep(0)  # the store has this chunk before the last one's receipts are made
                receipts += before.receipts(manager)
        if sending is not None:
            await sending.task
            receipts += sending.receipts(manager)
    except BaseException:
        await _let_go(jobs, sending)
        raise
    return receipts


async def _after(before: _Sending | None, chunk: _Chunk, manager: Manager) -> _Sending:
    """Begin to send a chunk when the one before is stored."""
    if before is not None:
        await before.task
    return _Sending(chunk, asyncio.create_task(_push(chunk, manager)))


async def _push(chunk: _Chunk, manager: Manager) -> Sent:
    return await manager.push(chunk.envelopes, checked=True) if chunk.envelopes else Sent([])


async def _let_go(jobs: Iterable[object], sending: _Sending | None) -> None:
    """Let the call under way end, and no builder warn of what the caller is about to be told."""
    if sending is not None:
        await asyncio.wait({sending.task})
        if not sending.task.cancelled():
            sending.task.exception()
    if isinstance(jobs, Sequence):
        for item in jobs:
            _opened(item)


def _opened(item: object) -> tuple[object, Asked]:
    """What is to be sent, and how."""
    return item.disarm() if isinstance(item, Dispatch) else (item, AS_IT_IS)


async def _build_some(items: Iterator[object], manager: Manager, kinds: _Kinds) -> _Chunk:
    """Now and then the loop has its turn: for the chunk before, which may not be on its way yet, and for others."""
    chunk = _Chunk()
    while turn := list(islice(items, _TURN)):
        await asyncio.sleep(0)
        _add(turn, chunk, manager, kinds)
    return chunk


def _add(items: Sequence[object], chunk: _Chunk, manager: Manager, kinds: _Kinds) -> None:
    """Add each job to the chunk, or why it cannot be sent. The first of a kind is looked at for all that follow."""
    origin: Kind | _Single
    for item, job_id in zip(items, new_ids(len(items)), strict=True):
        job, asked = _opened(item)
        kind = kinds.get(type(job)) if asked is AS_IT_IS else None
        try:
            if kind is not None:
                origin, envelope = kind, kind.build(cast("Job", job), manager, job_id)
            else:
                origin = _single(job, asked, manager, kinds, job_id)
                envelope = origin.envelope
        except (NimbusqError, TypeError) as error:
            chunk.origins.append(error)
        else:
            chunk.origins.append(origin)
            chunk.envelopes.append(envelope)


def _single(item: object, asked: Asked, manager: Manager, kinds: _Kinds, job_id: str) -> _Single:
    """The job with its envelope; its kind is known from now on. Raises what keeps it from being sent."""
    if asked.tx is not None:
        raise InvalidOption("dispatch_many sends outside any transaction: send() each job that has using().")
    job = as_job(item)
    envelope = build(job, asked, manager, job_id=job_id)
    manager.check_size(envelope)
    manager.route.of(envelope)
    if asked is AS_IT_IS and (kind := kind_of(type(job), manager)) is not None:
        kinds[type(job)] = kind
    return _Single(job=job, asked=asked, envelope=envelope)
