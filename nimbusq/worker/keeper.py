"""Leases are renewed beside the event loop that runs the jobs, so that a blocked loop keeps its jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nimbusq.driver import Adapter, Claim, Renewal
from nimbusq.errors import NimbusqError
from nimbusq.worker.pace import Pace

log = logging.getLogger("nimbusq.lease")

MARGIN: Final = 0.1
"""Share of the lease by which a run is given up before the store may hand it to somebody else."""


@dataclass(slots=True)
class Held:
    """A running claim. `confirmed` is when the call was sent that last renewed it, on the monotonic clock."""

    claim: Claim
    confirmed: float
    until: float
    """When to stop renewing because the run's time limit and grace have passed."""
    on_lost: Callable[[], None]
    on_cancel: Callable[[], None]


class LeaseKeeper:
    """Which claims are renewed, and one round of renewals. A plain object: `KeeperThread` drives it in
    production, a simulation drives `tick` on its own loop.

    `register` and `drop` come from the worker's loop, `tick` from the keeper's: each touches the dictionary in one
    step, which the interpreter makes atomic.
    """

    def __init__(self, lease: float) -> None:
        self.lease = lease
        self._held: dict[tuple[str, str], Held] = {}
        self.renewing = True
        """False: the worker's loop counts as dead, nothing is renewed any more."""

    def register(
        self,
        claim: Claim,
        *,
        on_lost: Callable[[], None],
        on_cancel: Callable[[], None],
        time_limit: float | None = None,
        claimed_at: float | None = None,
    ) -> None:
        """Keep this claim until it is dropped, lost, or its `time_limit` (with grace, in seconds) has passed.

        claimed_at: when the claiming call was sent, on the monotonic clock; the lease counts from there.
        """
        now = time.monotonic() if claimed_at is None else claimed_at
        until = float("inf") if time_limit is None else now + time_limit
        self._held[claim.id, claim.token] = Held(claim, now, until, on_lost, on_cancel)

    def drop(self, claim: Claim) -> None:
        """The run has ended, or was given up: renew it no more."""
        self._held.pop((claim.id, claim.token), None)

    def __len__(self) -> int:
        return len(self._held)

    async def tick(self, adapter: Adapter, now: float) -> None:
        """Renew all claims in one call; `now` is the monotonic time."""
        held = [one for one in list(self._held.values()) if now < one.until]
        if not held or not self.renewing:
            return
        try:
            async with asyncio.timeout(self.lease / 6):
                answers = await adapter.extend([one.claim for one in held], lease=self.lease)
        except (NimbusqError, TimeoutError):
            self.give_up_lapsed()
            raise
        for one, answer in zip(held, answers, strict=True):
            one.confirmed = now
            if answer is Renewal.LOST:
                self._lost(one)
            elif answer is Renewal.CANCEL:
                one.on_cancel()

    def give_up_lapsed(self) -> None:
        """Without an answer for nearly a lease the store may have given the job away: stop before it does."""
        lapsed = time.monotonic() - self.lease * (1 - MARGIN)
        for one in list(self._held.values()):
            if one.confirmed < lapsed:
                self._lost(one)

    def _lost(self, one: Held) -> None:
        if self._held.pop((one.claim.id, one.claim.token), None) is not None:
            one.on_lost()


class KeeperThread:
    """Drives a LeaseKeeper in a daemon thread with its own event loop and its own connection.

    `on_crash` is called from the thread when it ends by an error that is not the backend's: a worker without a
    keeper must stop.
    """

    def __init__(
        self, keeper: LeaseKeeper, adapter: Adapter, on_crash: Callable[[BaseException], None]
    ) -> None:
        self._keeper = keeper
        self._adapter = adapter
        self._on_crash = on_crash
        self._thread = threading.Thread(target=self._main, name="nimbusq-keeper", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    async def aclose(self) -> None:
        """Stop renewing and wait for the thread, without blocking the calling loop."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it ended in between
                loop.call_soon_threadsafe(stop.set)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 5.0)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001  # whatever ends the thread is the worker's business
            self._ready.set()
            self._on_crash(error)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        pace = Pace()
        third = self._keeper.lease / 3
        connected = False
        due = time.monotonic()  # connect at once, while no lease depends on it
        try:
            while not await _set_within(self._stop, max(0.0, due - time.monotonic())):
                due = time.monotonic() + third
                try:
                    if not connected:
                        async with asyncio.timeout(self._keeper.lease / 2):
                            await self._adapter.open()
                        connected = True
                    await self._keeper.tick(self._adapter, time.monotonic())
                    pace.reset()
                except (NimbusqError, TimeoutError) as error:
                    self._keeper.give_up_lapsed()
                    pace.complain(log, "leases could not be renewed: %s", str(error) or "no answer in time")
                    due = time.monotonic() + self._keeper.lease / 6
        finally:
            if connected:
                await self._adapter.aclose()


async def _set_within(event: asyncio.Event, timeout: float) -> bool:
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        return False
    return True
