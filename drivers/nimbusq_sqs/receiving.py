"""Receiving: long polls that nobody cancels, and what they brought until a claim takes it.

A long poll that is cut hides the next message until its visibility timeout ends, and may cost the job an attempt
(measured: 51 of 51 tries; the same is reported for AWS in aws-sdk-java-v2 #1395, aws-sdk-js #2350 and
aws-sdk-go-v2 #2068). So a poll runs in a task of the `Intake`, not of the claim: a cancelled claim leaves it alone,
the next claim takes what it brings, and what no claim takes within a moment is handed back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from nimbusq.clock import Clock
from nimbusq.driver import Lane, Want
from nimbusq.errors import StoreError
from nimbusq_sqs.client import SqsClient
from nimbusq_sqs.limits import BATCH, MAX_POLL, MAX_VISIBLE_IN, whole
from nimbusq_sqs.message import SYSTEM_ATTRIBUTES, Message, received, server_time
from nimbusq_sqs.queues import Queue, Queues
from nimbusq_sqs.trail import TRAIL

log = logging.getLogger("nimbusq.sqs")

_RECEIVERS: Final = 8
"""Most receives from one queue at once: with a round trip of 10 ms eight bring 3,172 jobs a second, four 2,563, and
one 670."""
_LINGER: Final = 0.25
"""Seconds that a received message waits for a claim, or a tenth of its lease if that is less."""

Handler = Callable[[Sequence[Message]], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Line:
    """What stands ready of one queue under one lease. dry: the last receive brought nothing; full: as much as it
    asked for. trouble: why the last one failed, until a claim raises it."""

    stock: deque[Message] = field(default_factory=deque)
    poll: asyncio.Task[None] | None = None
    dry: bool = False
    full: bool = False
    trouble: BaseException | None = None


class Intake:
    """Owned by the adapter's event loop, with all tasks that it starts: `aclose` awaits them.

    hop: forwards messages whose delay is not over. hand_back: puts back what was received and is not wanted.
    """

    def __init__(
        self,
        client: SqsClient,
        queues: Queues,
        clock: Clock,
        *,
        longest_delay: int,
        hop: Handler,
        hand_back: Handler,
    ) -> None:
        self._client = client
        self._queues = queues
        self._clock = clock
        self._longest_delay = longest_delay
        self._hop = hop
        self._hand_back = hand_back
        self._lines: dict[tuple[str, int], Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, want: Want) -> list[Message]:
        """At most `want.limit` messages: those that arrived in between and those that are there, else the first that
        arrive. Nothing leaves the stock before the last await, so cancelling it loses nothing."""
        if want.wait > 0:
            await self._poll_dry(want)
        await self._sweep(want)
        if not self._promised(want):
            self._raise_trouble(want)
            if want.wait > 0:
                await self._wait(want)
        taken = [
            self._line(lane, want).stock.popleft()
            for lane, count in self._promised(want)
            for _ in range(count)
        ]
        if not taken:
            self._raise_trouble(want)
        return taken

    async def aclose(self) -> None:
        """Wait for the polls under way, at most 5 s and a round trip, and hand back what nobody took."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unclaimed = [message for line in self._lines.values() for message in line.stock]
        self._lines.clear()
        try:
            await self._hand_back(unclaimed)
        except StoreError as error:
            log.warning("%d received jobs could not be handed back, they return with their lease: %s",
                        len(unclaimed), error)  # fmt: skip

    # --- taking ------------------------------------------------------------------------------------------------

    def _line(self, lane: Lane, want: Want) -> Line:
        return self._lines.setdefault((lane.queue, _visibility(want)), Line())

    def _promised(self, want: Want) -> list[tuple[Lane, int]]:
        """What the claim may take from the stock, queue by queue; empty where that is nothing."""
        promised, left = [], want.limit
        for lane in want.lanes:
            count = min(len(self._line(lane, want).stock), lane.limit, left)
            left -= count
            if count > 0:
                promised.append((lane, count))
        return promised

    async def _sweep(self, want: Want) -> None:
        """Ask each queue in order for what is there; those that are being polled are empty."""
        for lane in want.lanes:
            line = self._line(lane, want)
            left = want.limit - sum(count for _, count in self._promised(want))
            room = min(lane.limit - len(line.stock), left)
            if room <= 0 or line.poll is not None:
                continue
            receivers = max(1, min(_RECEIVERS, room // BATCH)) if line.full else 1
            queue = await self._queues.get(lane.queue)
            asked = [min(BATCH, room - n * BATCH) for n in range(receivers)]
            # asyncio.wait, here and below: it hands a cancellation of the claim on to none of the receives.
            await asyncio.wait([self._start(line, self._receive(line, queue, want, ask)) for ask in asked])

    async def _poll_dry(self, want: Want) -> None:
        """A queue that was empty a moment ago is polled rather than asked, also while others keep the claim busy."""
        for lane in want.lanes:
            line = self._line(lane, want)
            if line.dry and not line.stock and min(lane.limit, want.limit) > 0:
                await self._poll(lane, want)

    async def _wait(self, want: Want) -> None:
        """Keep one long poll on each queue with room, and wait until one of them ends."""
        lanes = [lane for lane in want.lanes if min(lane.limit, want.limit) > 0]
        if polls := [await self._poll(lane, want) for lane in lanes]:
            await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)

    async def _poll(self, lane: Lane, want: Want) -> asyncio.Task[None]:
        """The queue's one long poll; it asks for this queue's share of the slots."""
        queue = await self._queues.get(lane.queue)
        line = self._line(lane, want)
        if line.poll is None:
            share = max(1, min(BATCH, lane.limit, want.limit // len(want.lanes)))
            wait = max(1, min(MAX_POLL, whole(want.wait)))
            line.poll = self._start(line, self._receive(line, queue, want, share, wait=wait))
        return line.poll

    def _raise_trouble(self, want: Want) -> None:
        for lane in want.lanes:
            line = self._line(lane, want)
            trouble, line.trouble = line.trouble, None
            if trouble is not None:
                raise trouble

    # --- receiving ---------------------------------------------------------------------------------------------

    def _start(self, line: Line, receive: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(receive, name="nimbusq-sqs-receive")
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, line))
        return task

    def _ended(self, line: Line, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if line.poll is task:
            line.poll = None
        if not task.cancelled():
            line.trouble = task.exception() or line.trouble

    async def _receive(self, line: Line, queue: Queue, want: Want, ask: int, *, wait: int = 0) -> None:
        """One receive into the line's stock."""
        reply = await self._client.call(
            "receive_message",
            patience=wait,
            QueueUrl=queue.url,
            MaxNumberOfMessages=ask,
            VisibilityTimeout=_visibility(want),
            WaitTimeSeconds=wait,
            MessageSystemAttributeNames=list(SYSTEM_ATTRIBUTES),
            MessageAttributeNames=[TRAIL],
        )
        now = server_time(reply)
        messages = [self._read(found, queue, now) for found in reply.get("Messages", ())]
        line.dry, line.full, line.trouble = not messages, len(messages) == ask, None
        line.stock.extend(message for message in messages if not message.left)
        self._watch(want.lease)
        if early := [message for message in messages if message.left]:
            await self._hop(early)

    def _read(self, found: Any, queue: Queue, now: float) -> Message:
        return received(
            found,
            queue=queue.name,
            url=queue.url,
            fifo=queue.fifo,
            longest_delay=self._longest_delay,
            now=now,
            received_at=self._clock.monotonic(),
        )

    # --- handing back ------------------------------------------------------------------------------------------

    def _watch(self, lease: float) -> None:
        """See to it that nothing stays in stock that no claim takes."""
        if self._timer is None and any(line.stock for line in self._lines.values()):
            patience = min(_LINGER, lease / 10)
            self._timer = asyncio.get_running_loop().call_later(patience, self._clear, patience, lease)

    def _clear(self, patience: float, lease: float) -> None:
        self._timer = None
        stale_before = self._clock.monotonic() - patience
        for line in self._lines.values():
            stale = [message for message in line.stock if message.received_at <= stale_before]
            if stale:
                line.stock = deque(message for message in line.stock if message.received_at > stale_before)
                self._start(line, self._hand_back(stale))
        self._watch(lease)


def _visibility(want: Want) -> int:
    return min(MAX_VISIBLE_IN, max(1, whole(want.lease)))
