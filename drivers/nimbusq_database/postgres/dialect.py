"""PostgreSQL: batched claims with SKIP LOCKED, one statement a plain verb, LISTEN/NOTIFY beside polling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeAlias, TypeVar

from nimbusq.driver import DriverSettings, Finding
from nimbusq_database.attempts import Attempt, repeat
from nimbusq_database.client import Client, Work
from nimbusq_database.postgres import doctor
from nimbusq_database.postgres.address import PostgresAddress
from nimbusq_database.postgres.client import PostgresClient
from nimbusq_database.postgres.failures import leaves_connection_sound, translated, was_undone
from nimbusq_database.postgres.listener import Listener
from nimbusq_database.postgres.notifier import Notifier, payloads
from nimbusq_database.postgres.pool import Connections
from nimbusq_database.statements import Part, Spelling
from nimbusq_database.transaction import Transaction

T = TypeVar("T")

_NOW: Final = "date_part('epoch', statement_timestamp())"
"""Stable, so that an index can serve it; `extract` would go by way of a numeric, for each row that is written."""
_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended($1, 0))"
_NOTIFY: Final = "select pg_notify($1, $2), set_config('synchronous_commit', 'off', true)"
"""Without waiting for the disk: what it tells of is there already, and nothing is lost with it."""
_POLL: Final = 0.5
"""Seconds between two looks for news where nobody tells of them."""
_POLL_BESIDE: Final = 1.0
"""The same beside a listener that hears."""


class PostgresDialect:
    """`nimbusq_database.dialect.Dialect` for one database. Its tables lie where the search path says."""

    name = "postgres"
    creates = False
    hopeful = True
    spelling = Spelling(
        style="dollar",
        now=_NOW,
        clock=_NOW,
        contains=lambda name: f"= any (:{name}::text[])",
        greatest="greatest",
        least="least",
        for_update="for update",
        skip_locked="for update skip locked",
    )

    def __init__(self, address: PostgresAddress, prefix: str) -> None:
        self._address = address
        self._prefix = prefix
        self._channel = f"{prefix}_jobs"
        self._connections = Connections(address)
        self._listener: Listener | None = None
        self._notifier: Notifier | None = None
        self.heard: Callable[[Collection[str]], None] = lambda _topics: None
        self.single = True

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:
        """See `PostgresAddress.from_url`."""
        return cls(PostgresAddress.from_url(url), settings.prefix)

    def clone(self) -> Self:
        return type(self)(self._address, self._prefix)

    async def open(self) -> None:
        await self._connections.open()
        self._listener = Listener(self._address, self._channel, self.heard)
        self._notifier = Notifier(self._notify)
        self._notifier.open()

    async def aclose(self) -> None:
        notifier, listener = self._notifier, self._listener
        self._notifier = self._listener = None
        if notifier:
            await notifier.aclose()
        if listener:
            await listener.aclose()
        await self._connections.aclose()

    async def transact(self, work: Work[T], *, limit: float) -> T:
        return await self._repeat(_transact, work, limit)

    async def run(self, work: Work[T], *, limit: float, brief: bool = False) -> T:  # noqa: ARG002  # the protocol's
        """Behind a pooler a statement is prepared and run in two steps, which only a transaction binds."""
        return await self._repeat(_transact if self._address.pooled else _plain, work, limit)

    async def read(self, work: Work[T], *, limit: float) -> T:
        return await self.run(work, limit=limit)

    async def exclusively(self, work: Work[T]) -> T:
        async def locked(client: Client) -> T:
            await client.fetch((Part(_LOCK, ("name",)),), {"name": f"{self._prefix}_migrations"})
            return await work(client)

        return await self.transact(locked, limit=60.0)

    async def change(self, rung: asyncio.Event, seconds: float) -> None:
        listener = self._listener
        if listener:
            await listener.check()
        poll = _POLL_BESIDE if listener and listener.hears else _POLL
        with suppress(TimeoutError):
            async with asyncio.timeout(min(poll, seconds)):
                await rung.wait()

    def carried(self, queue: str) -> str | None:
        return self._notifier.carried(queue) if self._notifier else None

    def announce(self, topics: Collection[str]) -> None:
        if self._notifier:
            self._notifier.tell(topics)

    async def announce_within(self, tx: Transaction) -> None:
        """PostgreSQL delivers it with the application's commit."""
        for payload in payloads(tx.topics):
            await tx.fetch("notify", channel=self._channel, queues=payload)

    async def findings(self) -> Sequence[Finding]:
        return await self.read(doctor.findings, limit=5.0) + await self._listening()

    async def hindrance(self) -> str | None:
        return await self.read(doctor.hindrance, limit=5.0)

    async def _listening(self) -> list[Finding]:
        if not self._address.listen:
            return [Finding("warning", "no LISTEN (pooled, or listen=off): idle workers look every 0.5 s")]
        listener = Listener(self._address, self._channel, lambda _queues: None)
        try:
            heard = await listener.proves()
        finally:
            await listener.aclose()
        if heard:
            return [Finding("ok", "LISTEN hears")]
        return [
            Finding("warning", "LISTEN hears nothing (a pooler in between?): idle workers look every 0.5 s")
        ]

    async def _notify(self, payload: str) -> None:
        async def work(client: Client) -> None:
            await client.fetch((Part(_NOTIFY, ("channel", "payload")),), sent)

        sent = {"channel": self._channel, "payload": payload}
        await self.run(work, limit=2.0)

    async def _repeat(self, run: _Run[T], work: Work[T], limit: float) -> T:
        async def once(attempt: Attempt) -> T:
            return await self._connections.use(
                lambda connection: run(connection, work, attempt), attempt.until
            )

        return await repeat(
            once, limit=limit, translated=lambda: translated(self._address.shown), undone=was_undone
        )


_Run: TypeAlias = Callable[[Any, Work[T], Attempt], Awaitable[T]]


async def _plain(connection: Any, work: Work[T], attempt: Attempt) -> T:
    attempt.commit = True
    return await work(PostgresClient(connection))


async def _transact(connection: Any, work: Work[T], attempt: Attempt) -> T:
    await connection.execute("begin")
    try:
        answer = await work(PostgresClient(connection))
    except BaseException as error:
        if leaves_connection_sound(error):
            await connection.execute("rollback")
        raise
    attempt.commit = True
    await connection.execute("commit")
    return answer
