"""Settling: what must exist is sent first, then the message is deleted or hidden until its retry.

A crash between the two leaves both, under one job id: never nothing. Within this process a settlement whose call
failed half-way is not repeated as a whole: `Progress` remembers what was done for each receipt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from nimbusq.clock import Clock
from nimbusq.driver import Claim, PutBack, Retry, Settled, Settlement, SettleStatus
from nimbusq.envelope import Envelope
from nimbusq.errors import StoreError
from nimbusq_sqs import batches
from nimbusq_sqs.batches import Answer
from nimbusq_sqs.client import Refused, SqsClient
from nimbusq_sqs.limits import MAX_VISIBLE_IN, whole
from nimbusq_sqs.message import Message, Outgoing, failed_message, first_message
from nimbusq_sqs.queues import Queue, Queues

_REMEMBERED: Final = 10_000
"""Receipts of half-done settlements that are remembered at most; the oldest are forgotten."""


@dataclass(slots=True)
class Progress:
    """Receipts whose messages were sent, and those that were settled, by calls that then failed."""

    sent: dict[str, None] = field(default_factory=dict)
    settled: dict[str, SettleStatus] = field(default_factory=dict)

    def forget(self, handles: Sequence[str]) -> None:
        for handle in handles:
            self.sent.pop(handle, None)
            self.settled.pop(handle, None)

    def bound(self) -> None:
        for memory in (self.sent, self.settled):
            while len(memory) > _REMEMBERED:
                memory.pop(next(iter(memory)))


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do for one settlement: messages to send, then the message to delete, or to hide for `hide` seconds."""

    message: Message
    sends: tuple[tuple[Queue, Outgoing], ...] = ()
    hide: int | None = None


class Settling:
    """longest_delay: greatest DelaySeconds. group: the FIFO group of a job."""

    def __init__(
        self,
        client: SqsClient,
        queues: Queues,
        clock: Clock,
        *,
        longest_delay: int,
        group: Callable[[Envelope], str],
    ) -> None:
        self._client = client
        self._queues = queues
        self._clock = clock
        self._longest_delay = longest_delay
        self._group = group
        self._progress = Progress()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Answers in order. Raises StoreError where some could not be settled; the same call then goes on."""
        plans = [await self._plan(settlement) for settlement in settlements]
        statuses = await self._carry_out(plans)
        return [Settled(status) for status in statuses]

    async def hop(self, messages: Sequence[Message]) -> None:
        """Send on messages whose delay is not over. No attempt is counted."""
        trails = [(message, message.trail) for message in messages]
        await self._carry_out(
            [
                await self._copy(message, message.left, trail.attempts, trail.releases)
                for message, trail in trails
            ]
        )

    async def hand_back(self, messages: Sequence[Message]) -> None:
        """Put back messages that nobody has run, as if they had not been received."""
        await self._carry_out(
            [await self._back(message, 0.0, message.attempt - 1, 0) for message in messages]
        )

    # --- planning ----------------------------------------------------------------------------------------------

    async def _plan(self, settlement: Settlement) -> Plan:
        claim = settlement.claim
        message: Message = claim.receipt
        match settlement.outcome:
            case Retry(delay=delay):
                plan = await self._retried(message, delay, claim.attempt)
            case PutBack(delay=delay, counted=counted):
                plan = await self._back(message, delay, _attempts_before(claim), int(counted))
            case _:
                plan = Plan(message)
        followers = [await self._follower(envelope) for envelope in settlement.push]
        if settlement.failed is not None:
            followers.append(
                await self._buried(message, f"{settlement.failed.kind}: {settlement.failed.error}")
            )
        return Plan(message, (*followers, *plan.sends), plan.hide)

    async def _retried(self, message: Message, delay: float, attempts: int) -> Plan:
        """Hidden where it is, which duplicates nothing; only near the 12 hours it takes another message."""
        budget = MAX_VISIBLE_IN - 1 - whole(self._clock.monotonic() - message.received_at)
        if whole(delay) <= budget:
            return Plan(message, hide=whole(delay))
        if message.fifo:
            return Plan(message, hide=max(0, budget))
        return await self._copy(message, delay, attempts, message.trail.releases)

    async def _back(self, message: Message, delay: float, attempts: int, releases: int) -> Plan:
        """Another message, since only that gives the attempt back. In a FIFO queue that would change the order, so
        there the attempt stays counted, unless it was the last one."""
        if message.fifo and message.attempt < message.max_attempts:
            return Plan(message, hide=min(whole(delay), MAX_VISIBLE_IN - 1))
        return await self._copy(message, delay, attempts, message.trail.releases + releases)

    async def _copy(self, message: Message, delay: float, attempts: int, releases: int) -> Plan:
        queue = await self._queues.get(message.queue)
        copy = message.copy(
            delay=delay, longest_delay=self._longest_delay, attempts=attempts, releases=releases
        )
        return Plan(message, ((queue, copy),))

    async def _follower(self, envelope: Envelope) -> tuple[Queue, Outgoing]:
        queue = await self._queues.get(envelope.queue)
        return queue, first_message(envelope, longest_delay=self._longest_delay, group=self._group(envelope))

    async def _buried(self, message: Message, error: str) -> tuple[Queue, Outgoing]:
        queue = await self._queues.failed_of(message.queue)
        return queue, failed_message(message.raw, job_id=message.id, error=error, limit=queue.max_message)

    # --- carrying out ------------------------------------------------------------------------------------------

    async def _carry_out(self, plans: Sequence[Plan]) -> list[SettleStatus]:
        """Send, then acknowledge what has been sent; an error is raised after everything else is done."""
        progress = self._progress
        open_plans = [plan for plan in plans if plan.message.handle not in progress.settled]
        unsent = await self._send([plan for plan in open_plans if plan.message.handle not in progress.sent])
        ready = [plan for plan in open_plans if plan.message.handle not in unsent]
        answers = unsent | await self._acknowledge(ready)
        statuses = {handle: _status(answer) for handle, answer in answers.items()}
        failed = [answer for handle, answer in answers.items() if statuses[handle] is None]
        if failed:
            progress.sent.update(dict.fromkeys(plan.message.handle for plan in ready))
            progress.settled.update(
                {handle: status for handle, status in statuses.items() if status is not None}
            )
            progress.bound()
            raise next(error for error in failed if error is not None)
        known = dict.fromkeys(progress.settled, SettleStatus.ALREADY) | statuses
        handles = [plan.message.handle for plan in plans]
        progress.forget(handles)
        return [known[handle] or SettleStatus.LOST for handle in handles]

    async def _send(self, plans: Sequence[Plan]) -> dict[str, Answer]:
        """The receipts for which something could not be sent, with the first error of each."""
        outbox: dict[Queue, list[tuple[str, Outgoing]]] = defaultdict(list)
        for plan in plans:
            for queue, outgoing in plan.sends:
                outbox[queue].append((plan.message.handle, outgoing))
        unsent: dict[str, Answer] = {}
        for queue, letters in outbox.items():
            answers = await batches.send(self._client, queue, [outgoing for _, outgoing in letters])
            for (handle, _), answer in zip(letters, answers, strict=True):
                if answer is not None:
                    unsent.setdefault(handle, _blocking(answer))
        return unsent

    async def _acknowledge(self, plans: Sequence[Plan]) -> dict[str, Answer]:
        deletes: dict[str, list[str]] = defaultdict(list)
        hides: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for plan in plans:
            message = plan.message
            if plan.hide is None:
                deletes[message.url].append(message.handle)
            else:
                hides[message.url].append((message.handle, plan.hide))
        answers: dict[str, Answer] = {}
        for url, handles in deletes.items():
            answers |= zip(handles, await batches.delete(self._client, url, handles), strict=True)
        for url, pairs in hides.items():
            answers |= zip(
                (handle for handle, _ in pairs), await batches.hide(self._client, url, pairs), strict=True
            )
        return answers


def _attempts_before(claim: Claim) -> int:
    """Attempts counted without this claim; an ending counted none."""
    return claim.attempt if claim.ending else claim.attempt - 1


def _status(answer: Answer) -> SettleStatus | None:
    """None where it is still to be done. A refused receipt is stale: the message is another one's, or gone."""
    if answer is None:
        return SettleStatus.SETTLED
    return SettleStatus.LOST if isinstance(answer, Refused) else None


def _blocking(answer: StoreError) -> StoreError:
    """A message that SQS refuses to take is no stale receipt: the settlement is still to be done."""
    return StoreError(str(answer)) if isinstance(answer, Refused) else answer
