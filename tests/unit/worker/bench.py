"""A worker on the sync driver in worker mode, beside the test that watches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from nimbusq import Manager, Observer, Settings, Worker
from nimbusq.driver import (
    Adapter,
    Claim,
    Claimed,
    DriverSettings,
    JobView,
    Lane,
    Renewal,
    Settled,
    Settlement,
    Want,
)
from nimbusq.envelope import Envelope
from nimbusq.ids import new_token
from nimbusq.middleware import Middleware
from nimbusq.testing.audit import check
from nimbusq_sync import SyncAdapter

PATIENCE = 5.0
"""Seconds after which a test gives up waiting for what must happen at once."""


class Recorder:
    """An adapter in front of another: it keeps what was asked, and a test may put code before or after each verb.

    before, after: verb -> a coroutine function that gets the verb's argument (and its answer); what it raises
    reaches the caller as if the driver had raised it.
    """

    def __init__(self, adapter: SyncAdapter) -> None:
        self.wrapped = adapter
        self.wants: list[Want] = []
        self.settlements: list[list[Settlement]] = []
        self.extended: list[list[Claim]] = []
        self.before: dict[str, Callable[[Any], Awaitable[None]]] = {}
        self.after: dict[str, Callable[[Any, Any], Awaitable[None]]] = {}
        self.clones: list[Recorder] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def clone(self) -> Recorder:
        twin = Recorder(self.wrapped.clone())
        twin.extended, twin.before, twin.after = self.extended, self.before, self.after
        self.clones.append(twin)
        return twin

    async def open(self) -> None:
        await self._through("open", self, self.wrapped.open)

    async def claim(self, want: Want) -> Claimed:
        self.wants.append(want)
        return cast("Claimed", await self._through("claim", want, self.wrapped.claim, want))

    async def settle(self, settlements: Sequence[Settlement], *, tx: object = None) -> Sequence[Settled]:
        self.settlements.append(list(settlements))
        return cast(
            "Sequence[Settled]", await self._through("settle", settlements, self.wrapped.settle, settlements)
        )

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:
        self.extended.append(list(claims))

        async def extend() -> Sequence[Renewal]:
            return await self.wrapped.extend(claims, lease=lease)

        return cast("Sequence[Renewal]", await self._through("extend", claims, extend))

    async def _through(self, verb: str, asked: Any, call: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        if (before := self.before.get(verb)) is not None:
            await before(asked)
        answer = await call(*args)
        if (after := self.after.get(verb)) is not None:
            await after(asked, answer)
        return answer


@dataclass
class Diary(Observer):
    """An observer that writes down what it heard."""

    heard: list[tuple[str, Any]] = field(default_factory=list)

    def processed(self, claim: Claim, duration: float, error: str | None) -> None:
        self.heard.append(("processed", error))

    def retried(self, claim: Claim, delay: float, error: str) -> None:
        self.heard.append(("retried", error))

    def released(self, claim: Claim, delay: float) -> None:
        self.heard.append(("released", delay))

    def cancelled(self, claim: Claim, reason: str) -> None:
        self.heard.append(("cancelled", reason))

    def lease_lost(self, claim: Claim) -> None:
        self.heard.append(("lease_lost", claim.id))


class Bench:
    """One store in memory whose clock the test moves, its manager, and workers on it."""

    def __init__(
        self,
        *,
        observers: Sequence[Observer] = (),
        middleware: Sequence[Middleware] = (),
        **settings: Any,
    ) -> None:
        self.store = SyncAdapter(inline=False, settings=DriverSettings(testing=True))
        self.adapter = Recorder(self.store)
        quick = {"driver": "memory", "cancel_grace": 0.2, "shutdown_timeout": 1.0}
        self.manager = Manager(
            cast("Adapter", self.adapter),
            settings=Settings(**{**quick, **settings}),
            observers=observers,
            middleware=middleware,
        )

    def worker(self, queues: Any = "default", **options: Any) -> Worker:
        return Worker(self.manager, queues, **options)

    @asynccontextmanager
    async def working(self, queues: Any = "default", **options: Any) -> AsyncIterator[Worker]:
        """A running worker; it is stopped at the end, and its own error is the test's."""
        worker = self.worker(queues, **options)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await task

    async def advance(self, seconds: float) -> None:
        """Let the store's time pass: delays and leases end, while the worker's own clock stands."""
        await self.store.advance(seconds)

    async def view(self, job_id: str) -> JobView:
        view = await self.store.stores.jobs.get(job_id)
        assert view is not None, "the store does not know the job"
        return view

    async def claim(self, queue: str = "default", *, limit: int = 1, lease: float = 60.0) -> list[Claim]:
        """What another worker would get now."""
        lanes = (Lane(queue=queue, limit=limit),)
        want = Want(token=new_token(), limit=limit, lease=lease, lanes=lanes)
        return list((await self.store.claim(want)).claims)

    async def steal(self, lease: float) -> Claim:
        """Let the lease of the running job end, and claim it as another worker; a renewal may come in between."""
        while True:
            await self.advance(lease)
            if claims := await self.claim():
                return claims[0]

    async def push(self, name: str, **fields: Any) -> str:
        """Store a job that no class of this process stands for."""
        envelope = Envelope(**{"id": new_token(), "name": name, "queue": "default", **fields})
        await self.store.push([envelope])
        return envelope.id

    async def depth(self, queue: str = "default") -> tuple[int | None, int | None, int | None]:
        depth = await self.manager.depth(queue)
        return depth.pending, depth.delayed, depth.running

    async def events(self, job_id: str) -> list[str]:
        """What happened to the job, in order, as the store noted it, but for renewals."""
        events = await self.store.audit()
        return [event for event, job, *_ in events if job == job_id and event != "extend"]

    async def assert_sound(self) -> None:
        """The store never did what it must not do."""
        assert check(await self.store.audit()) == []


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop's other tasks their turns until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


async def happens(event: asyncio.Event) -> None:
    """Wait for what must happen at once."""
    async with asyncio.timeout(PATIENCE):
        await event.wait()
