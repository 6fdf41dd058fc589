"""MySQL and MariaDB: READ COMMITTED, rows selected for update and then changed by their keys, polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

from nimbusq.driver import DriverSettings, Finding
from nimbusq.errors import ConfigError, StoreUnavailable
from nimbusq_database.attempts import Attempt, repeat
from nimbusq_database.client import Client, Work
from nimbusq_database.mysql import doctor
from nimbusq_database.mysql.address import MysqlAddress
from nimbusq_database.mysql.client import MysqlClient
from nimbusq_database.mysql.failures import leaves_connection_sound, translated, was_undone
from nimbusq_database.mysql.pool import Connections
from nimbusq_database.statements import Part, Spelling
from nimbusq_database.transaction import Transaction

T = TypeVar("T")

_POLL: Final = 0.5
"""Seconds between two looks for other processes' news: MySQL tells nobody."""
_CLOCK: Final = "(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1e6)"


class MysqlDialect:
    """`nimbusq_database.dialect.Dialect` for one database.

    The clock is the statement's start in UTC, whatever time zone the session has.
    """

    name = "mysql"
    creates = False
    single = False
    hopeful = False
    spelling = Spelling(
        style="pyformat",
        now=_CLOCK,
        clock=_CLOCK,
        contains=lambda name: f"in :{name}",
        greatest="greatest",
        least="least",
        for_update="for update",
        skip_locked="for update skip locked",
    )

    def __init__(self, address: MysqlAddress, prefix: str) -> None:
        self._address = address
        self._prefix = prefix
        self._connections = Connections(address)
        self.heard: Callable[[Collection[str]], None] = lambda _topics: None

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:
        """See `MysqlAddress.from_url`."""
        return cls(MysqlAddress.from_url(url), settings.prefix)

    def clone(self) -> Self:
        return type(self)(self._address, self._prefix)

    async def open(self) -> None:
        """Raises ConfigError for a server that is too old to skip locked rows."""
        await self._connections.open()
        try:
            version = await self.read(doctor.version, limit=5.0)
        except BaseException:
            await self.aclose()
            raise
        if wrong := doctor.too_old(version):
            await self.aclose()
            raise ConfigError(wrong)

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def transact(self, work: Work[T], *, limit: float) -> T:
        return await self._repeat(work, limit, begin=True)

    async def run(self, work: Work[T], *, limit: float, brief: bool = False) -> T:  # noqa: ARG002  # the protocol's
        """A verb is never one statement here, so it gets its transaction."""
        return await self._repeat(work, limit, begin=True)

    async def read(self, work: Work[T], *, limit: float) -> T:
        return await self._repeat(work, limit, begin=False)

    async def exclusively(self, work: Work[T]) -> T:
        """MySQL commits each change of the schema, so that its lock is a session's and not a transaction's."""
        name = f"nq_{self._prefix}_migrations"

        async def locked(client: Client) -> T:
            (row,) = await client.fetch(
                (Part("select get_lock(%(name)s, 50) as held", ("name",)),), {"name": name}
            )
            if row["held"] != 1:
                raise StoreUnavailable(
                    f"{self._address.shown}: another process has been migrating for too long."
                )
            await client.execute((Part("set sql_notes = 0", ()),), {})  # "it exists already" is no news
            try:
                return await work(client)
            finally:
                await client.execute((Part("set sql_notes = 1", ()),), {})

        return await self._repeat(locked, 60.0, begin=False)

    async def change(self, rung: asyncio.Event, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_POLL, seconds)):
                await rung.wait()

    def carried(self, queue: str) -> str | None:  # noqa: ARG002  # the protocol's
        """Nothing: see `announce`."""
        return None

    def announce(self, topics: Collection[str]) -> None:
        """Nobody can be told; other processes poll."""

    async def announce_within(self, tx: Transaction) -> None:
        """Likewise."""

    async def hindrance(self) -> str | None:
        """Not known: what InnoDB keeps old versions for takes privileges to see."""
        return None

    async def findings(self) -> Sequence[Finding]:
        return await self.read(doctor.findings, limit=5.0)

    async def _repeat(self, work: Work[T], limit: float, *, begin: bool) -> T:
        async def once(attempt: Attempt) -> T:
            async with self._connections.one(attempt.until) as connection:
                client = MysqlClient(connection, begins=begin)
                try:
                    answer = await (_transact(connection, client, work, attempt) if begin else work(client))
                except BaseException as error:
                    if leaves_connection_sound(error):
                        await _let_go(connection, client)
                    raise
                await _let_go(connection, client)
                return answer

        return await repeat(
            once, limit=limit, translated=lambda: translated(self._address.shown), undone=was_undone
        )


async def _transact(connection: Any, client: MysqlClient, work: Work[T], attempt: Attempt) -> T:
    try:
        answer = await work(client)
    except BaseException as error:
        if leaves_connection_sound(error):
            await connection.rollback()
        raise
    attempt.commit = True
    await connection.commit()
    return answer


async def _let_go(connection: Any, client: MysqlClient) -> None:
    """Named locks outlive the transaction; others may judge these keys now that its outcome shows."""
    if client.named_locks:
        async with connection.cursor() as cursor:
            await cursor.execute("select release_all_locks()")
            await cursor.fetchall()
