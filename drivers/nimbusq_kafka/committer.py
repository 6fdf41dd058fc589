"""Group commit: one commit is in flight, and the next carries all that has happened meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from aiokafka.errors import CommitFailedError, IllegalStateError
from aiokafka.structs import OffsetAndMetadata

from nimbusq_kafka.config import DEADLINE
from nimbusq_kafka.gate import Gate
from nimbusq_kafka.partition import Partition
from nimbusq_kafka.troubles import TROUBLES, CommitRefused, translated

_PAUSE: Final = 0.2
"""Seconds after a commit that failed."""
_LINGER: Final = 0.002
"""Seconds for which finished runs wait for a claim to share its commit: a worker that has ended jobs asks for others
within a millisecond."""


class Committer:
    """Commits the windows that changed. Owned by the consumer's event loop.

    Claims and settlements mark their window, `touch` its partition and wait until the marks are `covered`.
    """

    def __init__(self, gate: Gate, owner: bytes, generation: Callable[[], Any]) -> None:
        self._gate = gate
        self._owner = owner
        self._generation = generation
        self._dirty: dict[Partition, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._lingering: asyncio.TimerHandle | None = None

    def touch(self, *partitions: Partition) -> None:
        """These windows have changed: they are in the next commit, which is asked for within 2 ms."""
        self._dirty.update(dict.fromkeys(partitions))
        self._wake_soon()

    def covered(self, *, at_once: bool = True) -> asyncio.Future[None]:
        """Done when a commit has carried all marks made so far; not `at_once`, it may wait for a claim to share it.

        Raises CommitRefused when the group has rebalanced meanwhile, StoreUnavailable when there was no answer.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if at_once:
            self._wake.set()
        else:
            self._wake_soon()
        return future

    def _wake_soon(self) -> None:
        if self._lingering is None:
            self._lingering = asyncio.get_running_loop().call_later(_LINGER, self._wake.set)

    async def run(self) -> None:
        """Commit whenever there is something to commit, until cancelled."""
        while True:
            await self._wake.wait()
            async with self._gate.step():
                self._sleep()
                succeeded = await self.commit()
            if not succeeded:
                self._wake.set()
                await asyncio.sleep(_PAUSE)

    def _sleep(self) -> None:
        """The commit that begins now carries everything."""
        self._wake.clear()
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    async def commit(self) -> bool:
        """One commit, and its answer to those who wait for it; whether it succeeded."""
        waiting, self._waiting = self._waiting, []
        dirty = [partition for partition in self._dirty if partition.alive]
        self._dirty.clear()
        error = await self._send(dirty) if dirty else None
        if error is not None:
            self._dirty.update(dict.fromkeys(dirty))
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # whoever waited may have been cancelled
        return error is None

    async def _send(self, partitions: Iterable[Partition]) -> Exception | None:
        bases = {partition: partition.window.base for partition in partitions}
        offsets = {
            partition.tp: OffsetAndMetadata(base, partition.window.write(self._owner))
            for partition, base in bases.items()
        }
        try:
            async with asyncio.timeout(DEADLINE):
                await self._generation().commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            refusal = CommitRefused("the group has rebalanced; this worker's claims may be another's now.")
            refusal.__cause__ = error
            return refusal
        except TROUBLES as error:
            return translated(error, "committing")
        for partition, base in bases.items():
            partition.committed = max(partition.committed, base)
        return None
