"""What goes wrong in a chaos run: workers are killed and frozen, links cut, servers killed."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from tests.drivers.proxy import Proxy
from tests.faults.servers import Server
from tests.faults.stage import Stage

PACE: Final = (0.1, 0.5)
"""Seconds between two strikes, at least and at most."""
FREEZE: Final = "freeze past the lease"
SHARES: Final = {
    "kill": 1.0,
    FREEZE: 0.05,
    "term": 0.06,
    "server kill": 0.04,
    "cut": 0.2,
    "reply to lose": 0.2,
}
"""How many there are at least for each kill of a worker, unless the plan asks for more."""
OF_SERVERS: Final = frozenset({"server kill", "cut", "reply to lose"})

Strike: TypeAlias = Callable[[asyncio.TaskGroup], Awaitable[None]]


class Nemesis:
    """least: how often each fault must come; the run of the nemesis ends with the last kill of a worker. server: None
    where there is none. links: the proxies before it. `struck` counts what was done."""

    def __init__(
        self,
        stage: Stage,
        *,
        least: Mapping[str, int],
        seed: int,
        lease: float,
        server: Server | None,
        links: Sequence[Proxy],
        pace: tuple[float, float] = PACE,
    ) -> None:
        self.struck: Counter[str] = Counter()
        self._stage = stage
        self._least = least
        self._lease = lease
        self._server = server
        self._links = links
        self._pace = pace
        self._dice = random.Random(seed)
        self._frozen: set[int] = set()

    @property
    def progress(self) -> float:
        return self.struck["kill"] / self._least["kill"] if self._least["kill"] else 1.0

    async def run(self) -> None:
        """Strike until all kills have landed, and leave everything healed."""
        async with asyncio.TaskGroup() as side:
            while self.progress < 1.0:
                await asyncio.sleep(self._dice.uniform(*self._pace))
                await self._strike(side)
        for link in self._links:
            link.lose_reply_to = b""

    async def _strike(self, side: asyncio.TaskGroup) -> None:
        """What is overdue by the schedule, else anything."""
        strikes = self._strikes()
        for name, (strike, _) in strikes.items():
            if name != "kill" and self.struck[name] < math.ceil(self._least.get(name, 0) * self.progress):
                return await strike(side)
        ((strike, _),) = self._dice.choices(
            list(strikes.values()), weights=[weight for _, weight in strikes.values()]
        )
        return await strike(side)

    def _strikes(self) -> dict[str, tuple[Strike, int]]:
        """Name -> what it is, and how often it comes beside what must."""
        strikes: dict[str, tuple[Strike, int]] = {
            "kill": (self._kill, 60),
            FREEZE: (self._freeze, 10),
            "term": (self._terminate, 4),
        }
        if self._server is not None:
            strikes |= {
                "server kill": (self._kill_server, 0),
                "server freeze": (self._freeze_server, 2),
                "cut": (self._cut, 8),
                "reply to lose": (self._lose_reply, 8),
                "half-open": (self._half_open, 2),
            }
        return strikes

    def _victim(self) -> int | None:
        awake = [pid for pid in self._stage.workers() if pid not in self._frozen]
        return self._dice.choice(awake) if awake else None

    # --- workers -----------------------------------------------------------------------------------------------

    async def _kill(self, _: asyncio.TaskGroup) -> None:
        if (pid := self._victim()) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.struck["kill"] += 1

    async def _terminate(self, _: asyncio.TaskGroup) -> None:
        if (pid := self._victim()) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                self.struck["term"] += 1

    async def _freeze(self, side: asyncio.TaskGroup) -> None:
        if (pid := self._victim()) is not None and not self._frozen:
            self._frozen.add(pid)
            leases = self._dice.uniform(0.3, 2.5)
            side.create_task(self._thaw_later(pid, self._lease * leases))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self.struck[FREEZE if leases > 1 else "short freeze"] += 1

    async def _thaw_later(self, pid: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._frozen.discard(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    # --- the network -------------------------------------------------------------------------------------------

    async def _cut(self, _: asyncio.TaskGroup) -> None:
        self.struck["cut"] += sum(link.cut() for link in self._links) // 2  # a connection has two sides

    async def _lose_reply(self, _: asyncio.TaskGroup) -> None:
        assert self._server is not None
        self._dice.choice(self._links).lose_reply_to = self._server.backend.request
        self.struck["reply to lose"] += 1

    async def _half_open(self, _: asyncio.TaskGroup) -> None:
        """Nothing passes for a while, and no connection is closed; then all are, since bytes are missing."""
        link = self._dice.choice(self._links)
        link.frozen = True
        await asyncio.sleep(self._dice.uniform(0.3, 1.5) * self._lease)
        link.frozen = False
        link.cut()
        self.struck["half-open"] += 1

    # --- the server --------------------------------------------------------------------------------------------

    async def _kill_server(self, _: asyncio.TaskGroup) -> None:
        assert self._server is not None
        self._server.kill()
        self.struck["server kill"] += 1
        await asyncio.sleep(self._dice.uniform(0, 1))
        await self._server.start()

    async def _freeze_server(self, _: asyncio.TaskGroup) -> None:
        assert self._server is not None
        self._server.freeze()
        await asyncio.sleep(self._dice.uniform(0.3, 1.5))
        self._server.thaw()
        self.struck["server freeze"] += 1
