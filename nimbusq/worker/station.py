"""One adapter at work: its claim loop, its settler and its keeper. A worker has one station per adapter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from nimbusq.driver import Adapter, Claim, Claimed, Stores
from nimbusq.worker.aftermath import Aftermath
from nimbusq.worker.claims import ClaimLoop
from nimbusq.worker.keeper import KeeperThread, LeaseKeeper
from nimbusq.worker.rates import RateGate
from nimbusq.worker.run import Cut, Run, Surroundings
from nimbusq.worker.settler import Settler
from nimbusq.worker.slots import Slots

SESSION_LOOK: Final = 3.0
"""Seconds; a third of it lies between two looks at which runs a session has lost."""


@dataclass(slots=True, kw_only=True)
class Station:
    """keeper is None for drivers whose claims never expire."""

    adapter: Adapter
    surroundings: Surroundings
    settler: Settler
    claims: ClaimLoop = field(init=False)
    keeper: LeaseKeeper | None
    _thread: KeeperThread | None = None

    @classmethod
    def build(
        cls,
        adapter: Adapter,
        slots: Slots,
        aftermath: Aftermath,
        *,
        lease: float,
        records: Stores | None,
        surroundings: Surroundings,
        take: Callable[[Station, Claim, float], None],
        reclaimed: Callable[[Claimed], Awaitable[None]],
        gate: RateGate | None,
        shared: bool,
    ) -> Station:
        keeper = _keeper_for(adapter, lease)
        settler = Settler(adapter, aftermath, lease=lease, records=records)
        station = cls(adapter=adapter, surroundings=surroundings, settler=settler, keeper=keeper)
        station.claims = ClaimLoop(
            adapter,
            slots,
            settler,
            lease=lease,
            take=partial(take, station),
            reclaimed=reclaimed,
            gate=gate,
            shared=shared,
        )
        return station

    def start(self, on_crash: Callable[[BaseException], None]) -> None:
        """Open the settler and start the keeper's thread."""
        self.settler.open()
        if self.keeper is not None:
            self._thread = KeeperThread(self.keeper, self.adapter.clone(), on_crash)
            self._thread.start()

    async def aclose(self) -> None:
        if self._thread is not None:
            await self._thread.aclose()
            self._thread = None

    def keep(self, run: Run, sent_at: float, call: Callable[[Run, Cut], None]) -> None:
        """Renew the run's lease until `release`, or until its time limit and grace have passed."""
        if self.keeper is None:
            return
        header = run.header
        limit = header.timeout if header else None
        if limit is not None:
            limit += self.surroundings.manager.settings.cancel_grace
        self.keeper.register(
            run.claim,
            on_lost=partial(call, run, Cut.LEASE_LOST),
            on_cancel=partial(call, run, Cut.CANCEL),
            time_limit=limit,
            claimed_at=sent_at,
        )

    def release(self, run: Run) -> None:
        """The run has ended: renew no more."""
        if self.keeper is not None:
            self.keeper.drop(run.claim)


def _keeper_for(adapter: Adapter, lease: float) -> LeaseKeeper | None:
    """A driver that keeps its leases alive by itself (kafka) is only asked, more often, which of them it has lost."""
    match adapter.capabilities.lease:
        case "timed":
            return LeaseKeeper(lease)
        case "session":
            return LeaseKeeper(min(lease, SESSION_LOOK))
        case _:
            return None
