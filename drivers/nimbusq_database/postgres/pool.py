"""Connections to a PostgreSQL server, with deadlines that hold and none trusted after a cut."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import asyncpg

from nimbusq.driver import Deadlines
from nimbusq.errors import StoreUnavailable
from nimbusq_database.postgres.address import PostgresAddress
from nimbusq_database.postgres.failures import leaves_connection_sound

T = TypeVar("T")

_IDLE: Final = 300.0
"""Seconds after which a connection that nobody needed is ended."""

_PATIENCE: Final = 5.0
"""Seconds for each of the two steps in which a connection is made."""

_PLANNING: Final = {"jit": "off", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
"""How the server plans. Each statement once: for lists of another length each time would else be planned anew each
time, which takes longer than to run. And for any table as for a large one: a queue is mostly empty, and planned for
an empty table, a statement for 500 jobs would read the whole table, or compare each of the 500 with each."""
_READY: Final = """
select
  case when current_setting('enable_seqscan') = 'off' then set_config('enable_nestloop', 'off', false) end,
  $1::int[], $2::bigint[], $3::float8[], $4::bytea[]
"""
"""For a new connection: where the session took the settings above, rows are joined by hash (a `lateral` is looked up
row by row all the same). And the arrays that statements take: asyncpg looks those up before it runs this, once a
connection, with a query of its own, which takes 9 ms, or 57 without nested loops."""


class Connections:
    """Connections on demand, each used by one task at a time; the one used last is used first.

    asyncpg's own pool makes sure that no session hands its state on to the next user, with a task, a proxy and a
    timer at each use: 60 of a short call's 98 us of CPU. Here no call ever changes a session's state.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._open = False
        self._slots = asyncio.Semaphore(0)
        self._deadlines = Deadlines()
        self._used: set[Any] = set()
        self._idle: deque[tuple[Any, float]] = deque()

    async def open(self) -> None:
        """Nothing is connected before it is needed."""
        self._open = True
        self._deadlines = Deadlines()  # of this loop: an earlier one may have ended without a close
        self._slots = asyncio.Semaphore(self._address.pool_size)

    async def aclose(self) -> None:
        """End the idle connections; those in use have a second to become idle, and are cut then."""
        if not self._open:
            return
        self._open = False
        try:
            with suppress(TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                async with asyncio.timeout(1.0):
                    for connection, _ in self._idle:
                        await connection.close()
                    for _ in range(self._address.pool_size):
                        await self._slots.acquire()
        finally:
            self._deadlines.close()
            for connection in [*self._used, *(idle for idle, _ in self._idle)]:
                connection.terminate()
            self._idle.clear()

    async def use(self, call: Callable[[Any], Awaitable[T]], until: float) -> T:
        """Run `call` on a connection until a time of the loop's clock. Raises TimeoutError.

        Unless the server has answered, the connection is cut at once: asyncpg would ask the server to cancel and
        wait for it, for ever if it is frozen, and what is under way could be answered to the next user.
        """
        self._check_open()
        seconds = until - asyncio.get_running_loop().time()
        with self._deadlines.within(seconds):
            async with self._slots:
                return await self._use(call)

    async def _use(self, call: Callable[[Any], Awaitable[T]]) -> T:
        connection = await self._take()
        try:
            return await call(connection)
        except BaseException as error:
            if not leaves_connection_sound(error):
                connection.terminate()
            raise
        finally:
            self._give_back(connection)

    async def _take(self) -> Any:
        """The idle connection that was used last, or a new one."""
        self._check_open()
        connection = self._pop() or await connect(self._address)
        self._used.add(connection)
        return connection

    def _pop(self) -> Any:
        """None where no idle connection is sound. One that has been idle for long may lead nowhere by now."""
        while self._idle:
            connection, since = self._idle.pop()
            if asyncio.get_running_loop().time() - since > _IDLE:
                connection.terminate()
            elif not connection.is_closed():
                return connection
        return None

    def _give_back(self, connection: Any) -> None:
        self._used.discard(connection)
        if not self._open:  # it was being made when the others were ended
            connection.terminate()
        if connection.is_closed():
            return
        now = asyncio.get_running_loop().time()
        self._idle.append((connection, now))
        if now - self._idle[0][1] > _IDLE:
            self._idle.popleft()[0].terminate()

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable(f"{self._address.shown} is not open.")


async def connect(address: PostgresAddress) -> Any:
    """A new connection that is ready for any statement."""
    connection = await asyncpg.connect(**connect_options(address))
    try:
        if not address.pooled:  # what a session is told there, another one may hear
            await connection.fetch(_READY, [], [], [], [], timeout=_PATIENCE)
    except BaseException:
        connection.terminate()
        raise
    return connection


def connect_options(address: PostgresAddress) -> dict[str, Any]:
    """How every connection is made."""
    options: dict[str, Any] = {
        "dsn": address.dsn,
        "statement_cache_size": address.statement_cache_size,
        "timeout": _PATIENCE,
    }
    if not address.pooled:  # a pooler refuses settings that it does not know
        options["server_settings"] = {"application_name": "nimbusq", **_PLANNING}
    return options
