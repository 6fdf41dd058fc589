"""Settlements leave in groups: those that wait while a round trip is under way go out together in the next."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from nimbusq.driver import Adapter, Done, Outcome, Settled, Settlement, Stores
from nimbusq.errors import StoreFull, StoreUnavailable
from nimbusq.worker.aftermath import Aftermath
from nimbusq.worker.conclude import conclude
from nimbusq.worker.pace import Pace
from nimbusq.worker.run import Run

log = logging.getLogger("nimbusq.worker")

GROUP: Final = 500
"""Most settlements of one call."""
TRIES: Final = 3
"""How often one settlement is tried that fails for another reason than the backend's absence."""
GIVE_UP_AFTER: Final = 3
"""Such settlements in a row; then the worker stops, since it can end nothing any more."""


class Ended(NamedTuple):
    """A run whose outcome is decided. `until` is when its lease has surely lapsed, on the monotonic clock."""

    run: Run
    outcome: Outcome
    until: float


class Settler:
    """One task settles for one adapter, and nobody cancels it: `close` lets it finish what it has.

    A settlement is repeated with its token until the store answers, or until its lease has surely lapsed:
    another worker has the job then, and this one's outcome would be refused.
    """

    def __init__(
        self, adapter: Adapter, aftermath: Aftermath, *, lease: float, records: Stores | None = None
    ) -> None:
        self._adapter = adapter
        self._aftermath = aftermath
        self._lease = lease
        self._records = records
        """Where failures, results and history of jobs go whose own driver keeps none."""
        self._waiting: list[Ended] = []
        self._under_way = 0
        self._woken = asyncio.Event()
        self._relieved = asyncio.Event()
        self._closing = False
        self._refused = 0
        """Jobs in a row that could not be settled for reasons of their own, or of the driver's."""

    @property
    def backlog(self) -> int:
        """Settlements that wait or are under way."""
        return len(self._waiting) + self._under_way

    def submit(self, run: Run, outcome: Outcome) -> None:
        """Settle this run as soon as possible."""
        self._waiting.append(Ended(run, outcome, time.monotonic() + self._lease))
        self._woken.set()

    def open(self) -> None:
        """Before each `run`."""
        self._closing = False

    def close(self) -> None:
        """No more will be submitted; `run` ends when all is settled."""
        self._closing = True
        self._woken.set()

    def nudge(self) -> None:
        """Let whoever waits for relief look again."""
        self._relieved.set()

    async def relief(self, timeout: float) -> None:
        """Wait until a group is settled, at most `timeout` seconds."""
        self._relieved.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._relieved.wait()
        except TimeoutError:
            pass

    async def run(self) -> None:
        """Settle until closed and empty."""
        while not (self._closing and not self._waiting):
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                group, self._waiting = self._waiting[:GROUP], self._waiting[GROUP:]
                self._under_way = len(group)
                await self._settle(group)
                self._under_way = 0
                self._relieved.set()

    async def _settle(self, group: list[Ended]) -> None:
        pace = Pace()
        while group:
            try:
                settlements = [await conclude(ended.run, ended.outcome) for ended in group]
                answers = await self._send(settlements)
            except (StoreUnavailable, StoreFull) as error:
                pace.complain(log, "cannot settle %d jobs: %s", len(group), error)
                await pace.rest()
                group = self._still_held(group)
            except Exception as error:  # noqa: BLE001  # one that cannot be stored, or a driver's bug
                pace.complain(log, "settling %d jobs failed: %r", len(group), error, exc_info=error)
                if len(group) > 1:
                    return await self._one_by_one(group)
                if pace.troubles >= TRIES:
                    return self._refuse(group[0], error)
                await pace.rest()
                group = self._still_held(group)
            else:
                self._refused = 0
                for ended, settlement, answer in zip(group, settlements, answers, strict=True):
                    await self._aftermath.settled(ended.run, settlement, answer)
                return None
        return None

    async def _one_by_one(self, group: list[Ended]) -> None:
        """Those that can be stored must not wait for the one that cannot."""
        for ended in group:
            await self._settle([ended])

    def _refuse(self, ended: Ended, error: Exception) -> None:
        """Give the job up, or the worker, when nothing can be settled any more."""
        self._refused += 1
        if self._refused >= GIVE_UP_AFTER:
            raise error
        log.error("job %s cannot be settled, it returns with its lease: %s", ended.run.claim.id, error)

    def _still_held(self, group: list[Ended]) -> list[Ended]:
        now = time.monotonic()
        for ended in group:
            if ended.until <= now:
                log.error(
                    "job %s could not be settled within its lease and will run again", ended.run.claim.id
                )
        return [ended for ended in group if ended.until > now]

    async def _send(self, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        """Records first where they live beside the driver: they are upserts by id, so a repetition is harmless,
        and nothing is acknowledged that is not recorded."""
        if self._records is None:
            return await self._adapter.settle(settlements)
        await keep_records(self._records, settlements)
        return await self._adapter.settle([without_records(settlement) for settlement in settlements])


async def keep_records(stores: Stores, settlements: Sequence[Settlement]) -> None:
    """Write failures, results and history into `stores`."""
    for settlement in settlements:
        if settlement.failed is not None and stores.failed is not None:
            await stores.failed.push(settlement.failed)
        result = settlement.outcome.result if isinstance(settlement.outcome, Done) else None
        if result is not None and stores.history is not None:
            await stores.history.keep_result(settlement.claim.id, result, settlement.result_ttl)
    rows = [settlement.history for settlement in settlements if settlement.history is not None]
    if rows and stores.history is not None:
        await stores.history.push(rows)


def without_records(settlement: Settlement) -> Settlement:
    """What is left for a driver whose records went elsewhere."""
    outcome = Done() if isinstance(settlement.outcome, Done) else settlement.outcome
    return settlement._replace(outcome=outcome, failed=None, history=None)
