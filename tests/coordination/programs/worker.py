"""A worker process: worker.py [QUEUE[:N]...], with CONCURRENCY, LEASE and RATE=20[:BURST] from the environment.

DIE=before|after:N ends it at once, as by kill -9, before or after the N-th settlement reached the store.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import shop  # noqa: F401  # defines the jobs

from nimbusq import Manager, Settings, Worker
from nimbusq.limit import RateLimit

KILLED = 99
"""What the process of a `Mortal` ends with."""


class Mortal:
    """An adapter whose process dies around one settlement."""

    def __init__(self, adapter: Any, when: str) -> None:
        self._adapter = adapter
        self._moment, _, number = when.partition(":")
        self._left = int(number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    async def settle(self, settlements: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._moment == "before":
            os._exit(KILLED)
        answer = await self._adapter.settle(settlements, **options)
        if self._left == 0:
            os._exit(KILLED)
        return answer


def mortal(manager: Manager, when: str) -> Manager:
    """The same manager, on the store beside its carrier where there is one, else on its adapter."""
    mortals: list[Any] = [manager.adapter, manager.store]
    last = 0 if manager.store is None else 1
    mortals[last] = Mortal(mortals[last], when)
    return Manager(mortals[0], store=mortals[1], settings=manager.settings)


async def main(queues: list[str]) -> None:
    limits = {}
    if rate := os.environ.get("RATE"):
        per_second, _, burst = rate.partition(":")
        limits["default"] = RateLimit(per_second=float(per_second), burst=int(burst or 1))
    manager = Manager(settings=Settings(rate_limits=limits))
    if when := os.environ.get("DIE"):
        manager = mortal(manager, when)
    async with manager:
        await Worker(
            manager,
            queues,
            concurrency=int(os.environ.get("CONCURRENCY", "4")),
            lease=float(os.environ.get("LEASE", "2")),
        ).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["default"]))
