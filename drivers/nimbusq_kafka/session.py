"""A session: one membership in the consumer group from join to leave, in a thread and an event loop of its own.

A handler that blocks the application's loop for longer than the group's session would otherwise throw the worker
out of the group, and its jobs would be run again by others. All that keeps the membership alive is therefore
out of the application's reach; the two loops exchange one message a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from nimbusq.clock import SystemClock
from nimbusq.driver import Claim, Claimed, Settled, Settlement, Want
from nimbusq.errors import StoreUnavailable
from nimbusq_kafka.broker_clock import BrokerClock
from nimbusq_kafka.claiming import Claimer
from nimbusq_kafka.cluster import Cluster
from nimbusq_kafka.config import KafkaConfig
from nimbusq_kafka.crossing import call_in
from nimbusq_kafka.delays import Delays
from nimbusq_kafka.hands import Hands
from nimbusq_kafka.janitor import Janitor
from nimbusq_kafka.member import Member
from nimbusq_kafka.outbox import Outbox
from nimbusq_kafka.reading import Reader
from nimbusq_kafka.settling import Settling
from nimbusq_kafka.topics import TopicNames

log = logging.getLogger("nimbusq.kafka")

T = TypeVar("T")


class Session:
    """Its methods are called from the application's loop. It ends by `aclose`, by an error of
    its own, or by itself when nobody claims any more; `over` tells."""

    def __init__(self, config: KafkaConfig, names: TopicNames) -> None:
        self._config = config
        self._names = names
        self._hands = Hands()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
        self._parts: _Parts | None = None
        self._joined: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="nimbusq-kafka", daemon=True)
        self._closing = False
        self.over = False

    # --- from the application's loop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect. The thread's loop is of the caller's kind: uvloop's is cheaper for this as well."""
        self._loop_factory = type(asyncio.get_running_loop())
        self._thread.start()

    async def joined(self) -> None:
        """Wait until it is connected. Raises StoreUnavailable."""
        if not self._joined.done():
            await asyncio.shield(asyncio.wrap_future(self._joined))
        self._joined.result()

    async def claim(self, want: Want) -> Claimed:
        try:
            return await self._call(lambda parts: parts.claim(want))
        except asyncio.CancelledError:
            self._tell(lambda parts: parts.hand_back(want.token))
            raise

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._call(lambda parts: parts.settling.settle(settlements))

    def holds(self, claim: Claim) -> bool:
        """The claim is this member's still. From any thread, without a round trip."""
        return self._hands.holds(claim)

    async def aclose(self) -> None:
        """Leave the group and end the thread."""
        self._closing = True
        self._tell(lambda parts: parts.stop.set())
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    async def _call(self, call: Callable[[_Parts], Coroutine[Any, Any, T]]) -> T:
        parts, loop = self._parts, self._loop
        if self.over or parts is None or loop is None or loop.is_closed():
            raise StoreUnavailable("the Kafka consumer has ended; the next claim starts another one.")
        return await call_in(loop, call(parts))

    def _tell(self, tell: Callable[[_Parts], object]) -> None:
        parts, loop = self._parts, self._loop
        if parts is None or loop is None:
            return
        with contextlib.suppress(RuntimeError):  # it has ended already
            loop.call_soon_threadsafe(tell, parts)

    # --- in the thread -----------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._run())
        except BaseException as error:  # noqa: BLE001 - the thread's end, whatever ends it; who waits must hear of it
            self._fail(error)
        finally:
            self.over = True

    def _fail(self, error: BaseException) -> None:
        if not self._joined.done():
            self._joined.set_exception(error)
        else:
            log.error(
                "the Kafka consumer ended by an error; the next claim starts another one", exc_info=error
            )

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            parts = _Parts(self._config, self._names, self._hands)
            await parts.open(stack)
            self._parts = parts
            if self._closing:
                parts.stop.set()
            self._joined.set_result(None)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(duty, name="nimbusq-kafka") for duty in parts.duties()]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:  # also where a duty's error ends the group: nothing is asked of a loop that is about to end
                    self.over = True
                for task in tasks:
                    task.cancel()


class _Parts:
    """What lives in the session's loop."""

    def __init__(self, config: KafkaConfig, names: TopicNames, hands: Hands) -> None:
        clock = BrokerClock(SystemClock())
        self.stop = asyncio.Event()
        self.cluster = Cluster(config, names)
        self.outbox = Outbox(config, clock)
        self.hands = hands
        self.member = Member(config, names, self.cluster, hands)
        self.delays = Delays(self.member, self.outbox, names, clock)
        self.reader = Reader(self.member, self.delays)
        self.claimer = Claimer(self.member, hands, clock)
        self.settling = Settling(self.member, hands, self.outbox, self.cluster, names, clock)
        self.janitor = Janitor(self.member, self.cluster, hands, self.claimer, delete=config.delete_records)
        self.member.void = self.claimer.void
        self._asked_clock = False

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect everything; `stack` disconnects it, the membership first."""
        for part in (self.cluster, self.outbox):
            stack.push_async_callback(part.aclose)
        await self.outbox.open()
        stack.push_async_callback(self.member.aclose)
        await self.member.open()

    def duties(self) -> list[Coroutine[Any, Any, Any]]:
        """What a session does besides answering calls. It ends with the first of them that ends."""
        return [
            self.stop.wait(),
            self.janitor.run(),
            self.member.run(),
            self.member.committer.run(),
            self.reader.run(),
            self.delays.forward(),
            self.delays.make_room(),
        ]

    async def claim(self, want: Want) -> Claimed:
        self.janitor.asked_for([lane.queue for lane in want.lanes], want.lease)
        await self.member.subscribe(self.janitor.wanted)
        if not self._asked_clock:
            self._asked_clock = True
            await self.delays.ask_clock()
        return await self.claimer.claim(want)

    def hand_back(self, token: str) -> None:
        """Nobody has received the claims of this token."""
        self.claimer.void(self.hands.of_token(token))
