"""What goes wrong in a chaos run: workers are killed and frozen, links cut, servers killed."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from tests.drivers.proxy import Proxy
from tests.faults.servers import Server
from tests.faults.stage import Stage

PACE: Final = (0.1, 0.5)
"""Seconds between two strikes, at least and at most."""
FREEZES, TERMS, CUTS, REPLIES, SERVER_KILLS = 0.1, 0.06, 0.2, 0.2, 0.04
"""How many there are at least for each kill of a worker."""

Strike: TypeAlias = Callable[[asyncio.TaskGroup], Awaitable[None]]


class Nemesis:
    """kills: of workers; the run of the nemesis ends with the last of them. server: None where there is none.
    links: the proxies before it. `struck` counts what was done."""

    def __init__(
        self,
        stage: Stage,
        *,
        kills: int,
        seed: int,
        lease: float,
        server: Server | None,
        links: Sequence[Proxy],
    ) -> None:
        self.struck: Counter[str] = Counter()
        self._stage = stage
        self._kills = kills
        self._lease = lease
        self._server = server
        self._links = links
        self._dice = random.Random(seed)
        self._frozen: set[int] = set()

    @property
    def progress(self) -> float:
        return self.struck["kill"] / self._kills if self._kills else 1.0

    async def run(self) -> None:
        """Strike until all kills have landed, and leave everything healed."""
        async with asyncio.TaskGroup() as side:
            while self.struck["kill"] < self._kills:
                await asyncio.sleep(self._dice.uniform(*PACE))
                await self._strike(side)
        for link in self._links:
            link.lose_reply_to = b""

    async def _strike(self, side: asyncio.TaskGroup) -> None:
        """What is overdue by the schedule, else anything."""
        strikes = self._strikes()
        for name, (strike, share, _) in strikes.items():
            if self.struck[name] < math.ceil(share * self.struck["kill"]):
                return await strike(side)
        ((strike, *_),) = self._dice.choices(
            list(strikes.values()), weights=[w for *_, w in strikes.values()]
        )
        return await strike(side)

    def _strikes(self) -> dict[str, tuple[Strike, float, int]]:
        """Name -> what it is, how often it must come for each kill, how often it comes beside that."""
        strikes: dict[str, tuple[Strike, float, int]] = {
            "kill": (self._kill, 0.0, 60),
            "freeze": (self._freeze, FREEZES, 10),
            "term": (self._terminate, TERMS, 4),
        }
        if self._server is not None:
            strikes |= {
                "server kill": (self._kill_server, SERVER_KILLS, 0),
                "server freeze": (self._freeze_server, 0.0, 2),
                "cut": (self._cut, CUTS, 8),
                "reply to lose": (self._lose_reply, REPLIES, 8),
                "half-open": (self._half_open, 0.0, 2),
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
            side.create_task(self._thaw_later(pid, self._lease * self._dice.uniform(0.3, 2.5)))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self.struck["freeze"] += 1

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
