"""What goes wrong in a chaos run: workers are killed and frozen, links cut, servers killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from tests.drivers.proxy import Proxy
from tests.faults.servers import Server
from tests.faults.stage import Stage

PACE: Final = (0.1, 0.5)
"""Seconds between two strikes, at least and at most."""
KILLS_PER_SERVER_KILL: Final = 25

Strike: TypeAlias = Callable[[asyncio.TaskGroup], Awaitable[None]]


class Nemesis:
    """kills: of workers; the run of the nemesis ends with the last of them. server, proxy: None where there are
    none. `struck` counts what was done."""

    def __init__(
        self, stage: Stage, *, kills: int, seed: int, lease: float, server: Server | None, proxy: Proxy | None
    ) -> None:
        self.struck: Counter[str] = Counter()
        self._stage = stage
        self._kills = kills
        self._lease = lease
        self._server = server
        self._proxy = proxy
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
        if self._proxy is not None:
            self._proxy.lose_reply_to = b""

    async def _strike(self, side: asyncio.TaskGroup) -> None:
        if self._server is not None and self._server_kills_due():
            await self._kill_server()
            return
        strikes = self._strikes()
        (strike,) = self._dice.choices(list(strikes), weights=list(strikes.values()))
        await strike(side)

    def _strikes(self) -> dict[Strike, int]:
        strikes: dict[Strike, int] = {self._kill: 60, self._freeze: 14, self._terminate: 6}
        if self._proxy is not None:
            strikes |= {self._cut: 10, self._lose_reply: 10, self._half_open: 2}
        if self._server is not None:
            strikes |= {self._freeze_server: 2}
        return strikes

    def _server_kills_due(self) -> bool:
        wanted = max(1, self._kills // KILLS_PER_SERVER_KILL)
        return self.struck["server kill"] < wanted * self.progress

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
        assert self._proxy is not None
        self.struck["cut"] += self._proxy.cut() // 2

    async def _lose_reply(self, _: asyncio.TaskGroup) -> None:
        assert self._proxy is not None
        assert self._server is not None
        self._proxy.lose_reply_to = self._server.backend.request
        self.struck["lost reply"] += 1

    async def _half_open(self, _: asyncio.TaskGroup) -> None:
        """Nothing passes for a while, and no connection is closed; then all are, since bytes are missing."""
        assert self._proxy is not None
        self._proxy.frozen = True
        await asyncio.sleep(self._dice.uniform(0.3, 1.5) * self._lease)
        self._proxy.frozen = False
        self._proxy.cut()
        self.struck["half-open"] += 1

    # --- the server --------------------------------------------------------------------------------------------

    async def _kill_server(self) -> None:
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
