"""LISTEN, as a hint beside polling: it may be late, and may be missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

import asyncpg

from nimbusq_database.postgres.address import PostgresAddress
from nimbusq_database.postgres.pool import connect_options

_PING_EVERY: Final = 20.0
_PING_ANSWER: Final = 2.0
_RETRY_AFTER: Final = 5.0
_PING: Final = "ping"


class Listener:
    """One connection of its own that listens, made when somebody first waits.

    It proves that it hears by notifying itself: a connection may die without a word, and behind a pooler in
    transaction mode LISTEN succeeds and says nothing. Until it has heard itself, and when it no longer does, its
    owner polls as if it were not there. Used by one loop only.
    """

    def __init__(
        self, address: PostgresAddress, channel: str, heard: Callable[[Collection[str]], None]
    ) -> None:
        self._address = address
        self._channel = channel
        self._heard = heard
        self._connection: Any = None
        self._lock = asyncio.Lock()
        self._pinged_at = 0.0
        self._heard_at = float("-inf")
        self._next_try = 0.0

    @property
    def hears(self) -> bool:
        """It heard the last ping, or that is still under way."""
        if self._connection is None or self._connection.is_closed():
            return False
        answered = self._heard_at >= self._pinged_at
        return answered or (self._heard_at > float("-inf") and _now() - self._pinged_at < _PING_ANSWER)

    async def check(self) -> None:
        """Connect if there is no connection, and see that it hears. Never raises for the network's sake."""
        if not self._address.listen or self._lock.locked():
            return
        async with self._lock:
            dead = self._connection is not None and not self.hears and _now() - self._pinged_at > _PING_ANSWER
            if dead or (self._connection is not None and self._connection.is_closed()):
                self._drop()
            try:
                async with asyncio.timeout(_PING_ANSWER):
                    await self._connect_or_ping()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                self._drop()

    async def proves(self) -> bool:
        """Connect, and see whether a notification arrives."""
        await self.check()
        for _ in range(20):
            if self._heard_at >= self._pinged_at > 0:
                return True
            await asyncio.sleep(0.05)
        return False

    async def aclose(self) -> None:
        self._drop()

    async def _connect_or_ping(self) -> None:
        now = _now()
        if self._connection is None:
            if now < self._next_try:
                return
            self._next_try = now + _RETRY_AFTER
            self._connection = await asyncpg.connect(**connect_options(self._address))
            await self._connection.add_listener(self._channel, self._on_notify)
        elif now - self._pinged_at < _PING_EVERY:
            return
        self._pinged_at = _now()
        await self._connection.execute("select pg_notify($1, $2)", self._channel, _PING)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._heard_at = float("-inf")
        if connection is not None:
            with suppress(asyncpg.InterfaceError):
                connection.terminate()

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        self._heard_at = _now()
        if payload != _PING:
            self._heard(json.loads(payload))


def _now() -> float:
    return asyncio.get_running_loop().time()
