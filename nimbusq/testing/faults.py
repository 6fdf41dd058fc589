"""A network that fails, in front of any adapter.

The two faults that matter are the lost request (nothing was done) and the lost reply (all was done), as in
Temporal's fault injection: the caller cannot tell one from the other.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, Self, TypeVar, cast

from nimbusq.clock import Clock, SystemClock
from nimbusq.driver import (
    Adapter,
    Capabilities,
    Claim,
    Claimed,
    Depth,
    DriverSettings,
    Finding,
    Pushed,
    Renewal,
    Settled,
    Settlement,
    Stores,
    Want,
)
from nimbusq.envelope import Envelope
from nimbusq.errors import ConfigError, StoreUnavailable

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """How often which fault happens.

    before: share of the calls that fail with nothing done. after: share of those that are done and then fail.
    cut_after: so many calls pass, then all fail with nothing done, until `Faults.heal`.
    delay: each call first waits for up to so many seconds. seed: the same one, the same faults.
    """

    before: float = 0.0
    after: float = 0.0
    cut_after: int | None = None
    delay: float = 0.0
    seed: int = 0


class Faults:
    """Decides the fate of each call, and counts: a test must see that its faults did happen."""

    def __init__(self, plan: FaultPlan, clock: Clock | None = None) -> None:
        self.plan = plan
        self.calls = 0
        self.lost_requests = 0
        self.lost_replies = 0
        self._clock = clock or SystemClock()
        self._random = random.Random(plan.seed)  # noqa: S311  # a test must be able to repeat it

    def heal(self) -> None:
        """From now on no call fails or waits."""
        self.plan = replace(self.plan, before=0.0, after=0.0, cut_after=None, delay=0.0)

    async def call(self, method: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the method through the bad network."""
        self.calls += 1
        fate = self._random.random()
        if self.plan.delay:
            await self._clock.sleep(self._random.uniform(0, self.plan.delay))
        if fate < self.plan.before or self._is_cut:
            self.lost_requests += 1
            raise StoreUnavailable("injected fault: the request was lost, nothing was done")
        answer = await method(*args, **kwargs)
        if fate > 1 - self.plan.after:
            self.lost_replies += 1
            raise StoreUnavailable("injected fault: the reply was lost, the call was done")
        return answer

    @property
    def _is_cut(self) -> bool:
        return self.plan.cut_after is not None and self.calls > self.plan.cut_after


class FaultyAdapter:
    """An adapter whose verbs and stores are reached through `Faults`. Opening and closing never fail."""

    def __init__(self, adapter: Adapter, faults: Faults) -> None:
        self.faults = faults
        self._adapter = adapter
        stores = adapter.stores
        self._stores = Stores(
            **{
                name: store and cast("Any", _FaultyStore(store, faults))
                for name in Stores.__dataclass_fields__
                for store in [getattr(stores, name)]
            }
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._adapter.capabilities

    @property
    def stores(self) -> Stores:
        return self._stores

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:  # noqa: ARG003  # the protocol's signature
        raise ConfigError("faults have no URL: write FaultyAdapter(adapter, Faults(FaultPlan(before=0.1))).")

    def clone(self) -> Self:
        """A clone of the adapter, behind the same faults."""
        return type(self)(self._adapter.clone(), self.faults)

    async def open(self) -> None:
        await self._adapter.open()

    async def aclose(self) -> None:
        await self._adapter.aclose()

    async def setup(self, queues: Sequence[str]) -> None:
        await self._adapter.setup(queues)

    async def push(self, envelopes: Sequence[Envelope], *, tx: object | None = None) -> Sequence[Pushed]:
        return await self.faults.call(self._adapter.push, envelopes, tx=tx)

    async def claim(self, want: Want) -> Claimed:
        return await self.faults.call(self._adapter.claim, want)

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:
        return await self.faults.call(self._adapter.extend, claims, lease=lease)

    async def settle(
        self, settlements: Sequence[Settlement], *, tx: object | None = None
    ) -> Sequence[Settled]:
        return await self.faults.call(self._adapter.settle, settlements, tx=tx)

    async def depth(self, queues: Sequence[str]) -> Sequence[Depth]:
        return await self.faults.call(self._adapter.depth, queues)

    async def doctor(self) -> Sequence[Finding]:
        return await self.faults.call(self._adapter.doctor)


class _FaultyStore:
    """Any of the stores: every method goes through the faults."""

    def __init__(self, store: object, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, name)

        async def through_faults(*args: Any, **kwargs: Any) -> Any:
            return await self._faults.call(method, *args, **kwargs)

        return through_faults
