"""Batches: many jobs with one progress, and callbacks when they have ended."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeAlias

from nimbusq.builder import Dispatch
from nimbusq.building import Asked, build
from nimbusq.callbacks import AnyCallback, CallbackJob, call_in_process, callback_envelope, disarm, taken
from nimbusq.calling import call_to_its_end
from nimbusq.chain import Chain
from nimbusq.clock import SystemClock
from nimbusq.context import find_job
from nimbusq.driver import Added, BatchState, BatchUpdate, Jobs, NewBatch, Pushed
from nimbusq.envelope import Callback, Envelope
from nimbusq.errors import BatchNotFound, InvalidOption, NimbusqError
from nimbusq.ids import derived_id, new_id
from nimbusq.jobs import Job
from nimbusq.manager import Manager, get_manager
from nimbusq.names import check_name
from nimbusq.options import check_priority, check_queue, check_retries
from nimbusq.receipt import cancel
from nimbusq.registry import registry

CHUNK: Final = 500
"""Members that one round trip adds."""
ABANDONED_AFTER: Final = 86_400.0
"""Seconds without any progress, after which a batch that is still open counts as left by its producer."""

Member: TypeAlias = Job | Dispatch[Any] | Chain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    id: str
    name: str = ""
    queue: str | None = None
    priority: int | None = None
    retries: int | None = None
    then: AnyCallback | None = None
    catch: AnyCallback | None = None
    finally_: AnyCallback | None = None
    cancel_on_failure: bool = False


class Batch:
    """Jobs and chains that count together: ``await Batch(jobs).named("import").then(job).send()``.

    jobs: any iterable; a generator is read in chunks while it is sent. Every call returns a copy.

    Callbacks are Jobs or `@job` functions. then: once, when all have ended and none failed. catch: for each
    member that failed for good. finally_: once, when all have ended. They take ``batch: BatchState`` (catch also
    ``error``) and are pushed by the step that ends the batch, so that no crash loses them. A chain counts once;
    a cancelled or expired member counts as failed without a catch.

    id: give one to be able to continue a batch whose producer died: the same members in the same order are sent
    again, and those that the store has are left alone.
    """

    def __init__(self, jobs: Iterable[Member] = (), *, id: str | None = None) -> None:  # noqa: A002  # the batch's id, as everywhere
        self._jobs = jobs
        self._plan = _Plan(id=id or new_id())
        if isinstance(jobs, Sequence):
            disarm(jobs)

    def _with(self, **changes: Any) -> Self:
        copy = type(self)(self._jobs)
        copy._plan = replace(self._plan, **changes)
        return copy

    @property
    def id(self) -> str:
        return self._plan.id

    def named(self, name: str) -> Self:
        """A name for people; callbacks registered under it (`register_batch`) fill those not given here."""
        return self._with(name=check_name("batch", name))

    def on_queue(self, queue: str) -> Self:
        """The queue of all members that do not ask for one of their own."""
        return self._with(queue=check_queue(queue))

    def priority(self, priority: int) -> Self:
        return self._with(priority=check_priority(priority))

    def retries(self, retries: int) -> Self:
        return self._with(retries=check_retries(retries))

    def then(self, callback: AnyCallback) -> Self:
        """Once, when every member has ended and none failed."""
        return self._with(then=callback)

    def catch(self, callback: AnyCallback) -> Self:
        """For each member that failed for good."""
        return self._with(catch=callback)

    def finally_(self, callback: AnyCallback) -> Self:
        """Once, when every member has ended."""
        return self._with(finally_=callback)

    def cancel_on_failure(self) -> Self:
        """Cancel what has not started as soon as one member fails."""
        return self._with(cancel_on_failure=True)

    # --- durable -----------------------------------------------------------------------------------------------

    async def send(self, manager: Manager | None = None) -> SentBatch:
        """Store the batch and its members, seal it and return. On the inline driver the members run first.

        Raises UnsupportedByDriver where the driver has no batches and no store is set. A batch whose producer
        dies here stays open: nothing fires, and the same batch (by its id) can be sent again.
        """
        manager = manager or get_manager()
        batches = manager.require("batches", "batches")
        plan = self._filled()
        await batches.create(_new_batch(plan, manager))
        position = 0
        for chunk in _chunks(self._jobs, CHUNK):
            envelopes = [self._member(item, n, manager) for n, item in enumerate(chunk, position)]
            await self._add(manager, envelopes, position)
            position += len(envelopes)
        update: BatchUpdate = await batches.seal(plan.id)
        await told(manager, update)
        return SentBatch(update.state, manager)

    async def _add(self, manager: Manager, envelopes: Sequence[Envelope], offset: int) -> None:
        """Add a chunk behind the store's mark; below it the store has these members already."""
        store = manager.require("batches", "batches")

        async def add() -> Sequence[Pushed]:
            added: Added = await store.add(self.id, envelopes, offset=offset)
            known = added.mark - offset
            if not added.pushed and 0 < known < len(envelopes):
                added = await store.add(self.id, envelopes[known:], offset=added.mark)
            return [Pushed(envelope.id) for envelope in envelopes]

        await manager.send(envelopes, add)

    def _member(self, item: Member, n: int, manager: Manager) -> Envelope:
        return member_envelope(item, derived_id(self.id, n), self.id, manager, self._plan)

    def _filled(self) -> _Plan:
        given = registry.callbacks.get(f"batch:{self._plan.name}", {}) if self._plan.name else {}
        return replace(
            self._plan, **{slot: job for slot, job in given.items() if getattr(self._plan, slot) is None}
        )

    # --- in this process -----------------------------------------------------------------------------------------

    async def run(self, *, concurrency: int = 100) -> BatchState:
        """Run all members at once in this process, `concurrency` at a time, and wait; nothing is stored.

        No retries. Callbacks may be plain callables; `catch` is called for each member that raised.
        """
        plan = self._filled()
        members = list(self._jobs)
        errors: list[str] = []
        clock = SystemClock()
        state = BatchState(
            id=plan.id,
            name=plan.name,
            total=len(members),
            pending=len(members),
            failed=0,
            sealed=True,
            created_at=clock.time(),
        )
        slots = asyncio.Semaphore(concurrency)

        async def run_one(member: Member) -> None:
            nonlocal state
            async with slots:
                error = await _error_of(member)
            failed = error is not None
            errors.extend([] if error is None else [str(error)])
            state = replace(
                state, pending=state.pending - 1, failed=state.failed + failed, errors=tuple(errors[:50])
            )
            if error is not None and plan.catch is not None:
                await call_in_process(plan.catch, batch=state, error=error)

        async with asyncio.TaskGroup() as group:
            for member in members:
                group.create_task(run_one(member))
        state = replace(state, finished_at=clock.time())
        if plan.then is not None and not state.failed:
            await call_in_process(plan.then, batch=state)
        if plan.finally_ is not None:
            await call_in_process(plan.finally_, batch=state)
        return state


async def _error_of(member: Member) -> Exception | None:
    try:
        if isinstance(member, Chain):
            await member.run()
        else:
            await call_to_its_end(taken(member, "a batch member")[0])
    except Exception as error:  # noqa: BLE001  # the member's failure, which the batch counts
        return error
    return None


def _chunks(jobs: Iterable[Member], size: int) -> Iterator[list[Member]]:
    iterator = iter(jobs)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _new_batch(plan: _Plan, manager: Manager) -> NewBatch:
    def envelope(kind: Any, callback: AnyCallback | None) -> Envelope | None:
        if callback is None:
            return None
        stored = callback_envelope(
            callback, Callback(kind=kind, of=plan.id), derived_id(plan.id, kind), manager
        )
        manager.check_size(stored)
        return stored

    return NewBatch(
        id=plan.id,
        name=plan.name,
        then=envelope("then", plan.then),
        catch=envelope("catch", plan.catch),
        finally_=envelope("finally", plan.finally_),
        cancel_on_failure=plan.cancel_on_failure,
    )


def member_envelope(
    item: Member, member_id: str, batch_id: str, manager: Manager, plan: _Plan | None = None
) -> Envelope:
    """The envelope of one member, or of the first link of a chain that is one."""
    if isinstance(item, Chain):
        return item.first_link(manager, chain_id=member_id, batch_id=batch_id)
    job, asked = taken(item, "a batch member")
    return build(job, _with_plan(asked, plan), manager, job_id=member_id, batch_id=batch_id)


def _with_plan(asked: Asked, plan: _Plan | None) -> Asked:
    """The batch's own queue, priority and retries, where the member asks for none."""
    if plan is None or (plan.queue is None and plan.priority is None and plan.retries is None):
        return asked
    return replace(
        asked,
        queue=asked.queue or plan.queue,
        priority=asked.priority or plan.priority,
        retries=plan.retries if asked.retries is None else asked.retries,
    )


async def told(manager: Manager, update: BatchUpdate) -> None:
    """Tell the observers of a batch that this call has finished, and run its callbacks on the inline driver."""
    if update.finished:
        await manager.observers.tell("batch_finished", update.state)
    if manager.adapter.capabilities.inline:
        await manager.run_inline()


class SentBatch:
    """A stored batch: its progress, more members, its cancellation."""

    def __init__(self, state: BatchState, manager: Manager) -> None:
        self.state = state
        self._manager = manager

    def __repr__(self) -> str:
        return f"<batch {self.state.name or self.id}: {self.state.processed} of {self.state.total}>"

    @property
    def id(self) -> str:
        return self.state.id

    async def refresh(self) -> BatchState:
        """Load the stored progress. Raises BatchNotFound when it has expired."""
        state: BatchState | None = await self._manager.require("batches", "batches").find(self.id)
        if state is None:
            raise BatchNotFound(f"batch {self.id} is unknown or has expired.")
        self.state = state
        return state

    async def add(self, *jobs: Member) -> None:
        """More members, as long as the batch has not finished.

        From inside a run, their ids are derived from it, so that a repeated run adds none twice; a member that
        adds to its own batch keeps it open. Raises InvalidOption once the batch has finished.
        """
        inside = find_job()
        store = self._manager.require("batches", "batches")
        envelopes = []
        for job in jobs:
            if inside is None:
                member_id = new_id()
            else:
                member_id = derived_id(self.id, f"{inside.id}:{inside.added}")
                inside.added += 1
            envelopes.append(member_envelope(job, member_id, self.id, self._manager))

        async def add() -> Sequence[Pushed]:
            await store.add(self.id, envelopes)
            return [Pushed(envelope.id) for envelope in envelopes]

        await self._manager.send(envelopes, add)

    async def cancel(self) -> BatchState:
        """Cancel the members that have not started (they count as failed, without a catch) and ask running ones
        to stop. The batch finishes when they have ended."""
        store = self._manager.require("batches", "batches")
        await told(self._manager, await store.cancel(self.id))
        cursor, more = "", True
        while more:
            members, cursor = await store.members(self.id, cursor=cursor)
            for member in members:
                await _cancel_member(self._manager, member)
            more = bool(cursor)
        return await self.refresh()


async def _cancel_member(manager: Manager, member_id: str) -> None:
    """Cancel a member at once, or the link at which a member that is a chain stands (their ids follow from its id).

    What is not found here is cancelled all the same, when a worker would start it.
    """
    reason = "the batch was cancelled"
    if await cancel(manager, member_id, reason):
        return
    jobs: Jobs = manager.require("jobs", "cancelling jobs")
    for index in itertools.count():
        link = await jobs.get(derived_id(member_id, index))
        if link is None:
            return
        if link.state not in ("done", "failed", "cancelled"):
            await cancel(manager, link.id, reason)
            return


def stage_of(state: BatchState, now: float) -> Literal["open", "incomplete", "running", "finished"]:
    """Where a batch stands at `now`, on the store's clock.

    open: its producer may add more. incomplete: still open a day after its last progress, so that its producer
    must be taken for dead; it fires nothing until it is sent again under its id, or cancelled. running: sealed.
    """
    if state.finished:
        return "finished"
    if state.sealed:
        return "running"
    return "incomplete" if now - state.updated_at >= ABANDONED_AFTER else "open"


async def find_batch(batch_id: str, manager: Manager | None = None) -> SentBatch:
    """A stored batch by its id. Raises BatchNotFound."""
    manager = manager or get_manager()
    state: BatchState | None = await manager.require("batches", "batches").find(batch_id)
    if state is None:
        raise BatchNotFound(f"batch {batch_id} is unknown or has expired.")
    return SentBatch(state, manager)


async def current_batch() -> SentBatch:
    """The batch of the running job. Raises NimbusqError outside a batch's member."""
    inside = find_job()
    if inside is None or inside.batch_id is None:
        raise NimbusqError("current_batch() works only in a job that is a member of a batch.")
    return await find_batch(inside.batch_id)


def register_batch(
    name: str,
    *,
    then: CallbackJob | None = None,
    catch: CallbackJob | None = None,
    finally_: CallbackJob | None = None,
) -> None:
    """Callbacks for every batch of that name that does not bring its own (the seed's RegisterBatch).

    They are stored with the batch when it is sent, so only producers need them registered.
    """
    given = {"then": then, "catch": catch, "finally_": finally_}
    slots = {slot: job for slot, job in given.items() if job is not None}
    if not slots:
        raise InvalidOption("register_batch takes at least one of then, catch and finally_.")
    registry.callbacks[f"batch:{check_name('batch', name)}"] = slots
