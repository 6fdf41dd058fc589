"""How much a worker may still take on, over all its queues and for each of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from nimbusq.driver import Lane
from nimbusq.limit import RateLimit

_WHOLE: Final = 16
"""So few slots are claimed for in one call, since each call costs as much as a job or two."""


class Slots:
    """Owned by the worker's event loop: claim loops take, runs give back.

    queues: name -> most slots of it (None: all), in order of preference.
    """

    def __init__(
        self, concurrency: int, queues: Mapping[str, int | None], rates: Mapping[str, RateLimit]
    ) -> None:
        self.concurrency = concurrency
        self.free = concurrency
        """Slots that no job fills."""
        self.at_once = max(_WHOLE, -(-concurrency // 2))
        """Most jobs of one claim: half of the slots, so that the next claim is under way while these jobs run, and
        neither the store nor the worker waits for the other."""
        self._queues = {queue: min(limit or concurrency, concurrency) for queue, limit in queues.items()}
        self._rates = {queue: limit.of_queue(queue) for queue, limit in rates.items()}
        self._taken: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._watchers: list[Callable[[], None]] = []

    def lanes(self) -> tuple[Lane, ...]:
        """What may be claimed now, queue by queue; a queue without a free slot has limit 0."""
        free = self.free
        return tuple(
            Lane(queue=queue, limit=min(free, limit - self._taken[queue]), rate=self._rates.get(queue))
            for queue, limit in self._queues.items()
        )

    def nudge(self) -> None:
        """Let whoever waits look again."""
        self._changed.set()
        self._tell()

    def take(self, queue: str) -> None:
        self._taken[queue] += 1
        self.free -= 1
        self._tell()

    def give_back(self, queue: str) -> None:
        self._taken[queue] -= 1
        self.free += 1
        self.nudge()

    def opened(self, lanes: Sequence[Lane]) -> bool:
        """Whether a queue that had no free slot in `lanes` has one now."""
        full = {lane.queue for lane in lanes if lane.limit <= 0}
        return bool(full) and any(lane.limit > 0 for lane in self.lanes() if lane.queue in full)

    @contextmanager
    def watched(self, look: Callable[[], None]) -> Iterator[None]:
        """Have `look` called now, and whenever a slot is taken or given back, or somebody nudges."""
        self._watchers.append(look)
        try:
            look()
            yield
        finally:
            self._watchers.remove(look)

    async def changed(self, timeout: float) -> None:
        """Wait until a slot is given back, at most `timeout` seconds."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _tell(self) -> None:
        for look in self._watchers:
            look()
