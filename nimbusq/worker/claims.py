"""The claim loop: take what is due, as much as there are free slots, and never stop looking for lost leases."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from nimbusq.driver import Adapter, Claim, Claimed, Lane, PutBack, Settlement, Want, to_its_end
from nimbusq.errors import NimbusqError, StoreError
from nimbusq.ids import new_token
from nimbusq.worker.pace import Pace
from nimbusq.worker.rates import LOOK_EVERY, RateGate
from nimbusq.worker.settler import Settler
from nimbusq.worker.slots import Slots

log = logging.getLogger("nimbusq.worker")

WAIT: Final = 5.0
"""Longest wait of one claiming call in seconds."""
GIVE_UP_AFTER: Final = 6
"""Errors in a row that are not the backend's; then the worker stops instead of spinning on a bug."""


class ClaimLoop:
    """One per adapter; its task is never cancelled: `stop` ends it after the claim under way has been answered.

    gate: reserves rates where the driver has none. shared: another adapter's loop takes from the same slots.
    take: starts runs for what was claimed (it only creates tasks). taken_back: told of lost leases.
    """

    def __init__(
        self,
        adapter: Adapter,
        slots: Slots,
        settler: Settler,
        *,
        lease: float,
        take: Callable[[Claim, float], None],
        reclaimed: Callable[[Claimed], Awaitable[None]],
        gate: RateGate | None = None,
        shared: bool = False,
    ) -> None:
        self._gate = gate
        self._shared = shared
        self._adapter = adapter
        self._slots = slots
        self._settler = settler
        self._lease = lease
        self._take = take
        self._reclaimed = reclaimed
        self._stop = asyncio.Event()
        self._swept_at = 0.0
        self._token: str | None = None
        self.claimed_at = time.monotonic()
        """When the store last answered a claim, on the monotonic clock: the readiness of the worker."""
        self._more = False
        """The last call brought as much as it asked for, so that the next one need not wait."""

    @property
    def silence(self) -> float:
        """Seconds without an answer after which the store counts as away."""
        return max(15.0, self._lease / 3 + 10.0)

    def stop(self) -> None:
        """Claim no more."""
        self._stop.set()
        self._slots.nudge()
        self._settler.nudge()

    async def run(self) -> None:
        """Claim until stopped. Ends with an error only when claiming fails for reasons of our own."""
        pace = Pace()
        while not self._stop.is_set():
            if not self._more:
                await asyncio.sleep(0)  # runs that have just begun come first: the next claim is in no hurry
            if not await self._room() or self._stop.is_set():
                continue
            try:
                await self._once(wait=self._wait, most=self._slots.at_once)
                pace.reset()
            except StoreError as error:
                pace.complain(log, "cannot claim: %s", error)
                await pace.rest(self._stop)
            except Exception as error:  # a driver's bug: survive it once, not for ever
                pace.complain(log, "claiming failed: %r", error, exc_info=error)
                if pace.troubles >= GIVE_UP_AFTER:
                    raise
                await pace.rest(self._stop)

    async def once(self) -> int:
        """One claiming call, for all free slots and without waiting; how many jobs it brought. A caller that is
        cancelled meanwhile is told so when their runs have begun."""
        return await to_its_end(self._once(wait=0.0, most=self._slots.concurrency))

    async def _once(self, *, wait: float, most: int) -> int:
        lanes = self._slots.lanes()
        if self._gate is not None and self._gate.covers(lanes):
            return await self._once_rated(self._gate, lanes, most)
        claimed = await self._claim_and_take(lanes, wait, most)
        # A call that may not wait leaves it to the next one, which waits and listens to the other lanes meanwhile.
        if wait and not claimed.claims and claimed.retry_after is not None:
            await self._pause(min(claimed.retry_after, WAIT))
        return len(claimed.claims)

    async def _once_rated(self, gate: RateGate, lanes: tuple[Lane, ...], most: int) -> int:
        """The driver has no rates: reserve, claim without waiting, give back. Then wait for the other lanes."""
        admitted = await gate.admit(lanes)
        claimed = Claimed()
        try:
            claimed = await self._claim_and_take(admitted.lanes, 0.0, most)
        finally:
            await gate.settle_up(admitted, claimed.claims)
        if claimed.claims:
            return len(claimed.claims)
        rest = min(LOOK_EVERY, admitted.retry_after or LOOK_EVERY)
        others = tuple(lane for lane in lanes if not gate.covers((lane,)))
        if any(lane.limit for lane in others):
            return len((await self._claim_and_take(others, rest, most)).claims)
        await self._pause(rest)
        return 0

    async def _claim_and_take(self, lanes: tuple[Lane, ...], wait: float, most: int) -> Claimed:
        want = Want(
            token=self._token or new_token(),
            limit=min(self._slots.free, most),
            lease=self._lease,
            wait=wait,
            lanes=lanes,
        )
        self._token = want.token  # kept when the reply is lost, so that the same call brings the same jobs
        sent_at = time.monotonic()
        claimed = await self._claim(want)
        self._token = None
        self._more = len(claimed.claims) >= want.limit > 0
        self.claimed_at = self._swept_at = time.monotonic()
        surplus = [claim for claim in claimed.claims if not self._start(claim, sent_at)]
        if surplus:
            await self._hand_back(Claimed(surplus))
        if claimed.lost:
            await self._reclaimed(claimed)
        return claimed

    def _start(self, claim: Claim, sent_at: float) -> bool:
        """Run it, unless another adapter's loop took the slot meanwhile."""
        if claim.ending is None and not self._slots.free:
            return False
        self._take(claim, sent_at)
        return True

    async def _claim(self, want: Want) -> Claimed:
        """A stop interrupts the waiting, not the claiming: what comes back all the same is handed back at once."""
        claimed = await (self._wait_and_claim(want) if want.wait else self._adapter.claim(want))
        if not self._stop.is_set():
            return claimed
        await self._hand_back(claimed)
        return Claimed(lost=claimed.lost)

    async def _wait_and_claim(self, want: Want) -> Claimed:
        """What ends the waiting cancels the call, which by its contract loses nothing by that."""
        waiting = asyncio.timeout(None)
        try:
            async with waiting:
                with self._slots.watched(partial(self._end_waiting, waiting, want)):
                    return await self._adapter.claim(want)
        except TimeoutError:
            if waiting.expired():
                return Claimed()
            raise

    def _end_waiting(self, waiting: asyncio.Timeout, want: Want) -> None:
        """If there is a reason to: a stop, a queue that was full for this call and is not any more, or a slot that
        another adapter's loop took."""
        if waiting.when() is not None:
            return  # it is under way: to ask for it again would put it off
        opened = want.limit and self._slots.opened(want.lanes)
        taken = self._shared and self._slots.free < want.limit
        if opened or taken or self._stop.is_set():
            waiting.reschedule(asyncio.get_running_loop().time())

    async def _hand_back(self, claimed: Claimed) -> None:
        if not claimed.claims:
            return
        settlements = [
            Settlement(claim=claim, outcome=PutBack(0.0, counted=False)) for claim in claimed.claims
        ]
        try:
            await self._adapter.settle(settlements)
        except NimbusqError as error:
            log.warning("%d claimed jobs could not be handed back, they return with their lease: %s",
                        len(settlements), error)  # fmt: skip

    # --- pacing ------------------------------------------------------------------------------------------------

    @property
    def _wait(self) -> float:
        return min(WAIT, self._lease / 3) if self._slots.free and not self._more else 0.0

    async def _room(self) -> bool:
        """Wait for a free slot and a settler that keeps up; with none, it is time to claim after a third of the
        lease all the same, for lost leases only."""
        if self._settler.backlog > 2 * self._slots.concurrency:
            await self._settler.relief(self._lease / 3)
            return False
        if self._slots.free:
            return True
        due = self._swept_at + self._lease / 3 - time.monotonic()
        if due <= 0:
            return True
        await self._slots.changed(due)
        return self._slots.free > 0

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass
