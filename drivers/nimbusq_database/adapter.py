"""The adapter: five verbs, each one transaction; only `claim` waits, outside of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Literal, Self

from nimbusq.driver import (
    Capabilities,
    Claim,
    Claimed,
    Depth,
    DriverSettings,
    Finding,
    Pushed,
    PushGroups,
    PutBack,
    Renewal,
    Settled,
    Settlement,
    Stores,
    Want,
    to_its_end,
)
from nimbusq.envelope import Envelope
from nimbusq.errors import ConfigError, DispatchUncertain
from nimbusq_database import claim, ends, extend, plain, push, settle
from nimbusq_database.bell import Bell
from nimbusq_database.claim import Look
from nimbusq_database.database import DEADLINE, Database
from nimbusq_database.dialect import Dialect
from nimbusq_database.failures import AlreadyThere, OutcomeUnknown
from nimbusq_database.fronts import Fronts
from nimbusq_database.job_row import raw_columns
from nimbusq_database.joined import JoinedCalls
from nimbusq_database.migrations import Migrations, sql
from nimbusq_database.pruning import Pruning
from nimbusq_database.statements import Statements
from nimbusq_database.stores.batches import DatabaseBatches
from nimbusq_database.stores.failed import DatabaseFailedStore
from nimbusq_database.stores.history import DatabaseHistory
from nimbusq_database.stores.jobs import DatabaseJobs
from nimbusq_database.stores.limiter import DatabaseLimiter
from nimbusq_database.stores.locker import DatabaseLocker
from nimbusq_database.stores.results import DatabaseResults
from nimbusq_database.stores.schedules import DatabaseSchedules
from nimbusq_database.stores.workers import DatabaseWorkers
from nimbusq_database.transaction import Transaction
from nimbusq_database.urls import dialect_from_url

_CAPABILITIES: Final = Capabilities(
    driver="database",
    durable=True,
    lease="timed",
    fenced=True,
    atomic=True,
    transactional=True,
    priorities=True,
    cancellable=True,
    max_delay=None,
    max_lease=None,
    max_body=None,
)

_FEW: Final = 8
"""Jobs of a brief push."""
_SMALL: Final = 16_384
"""Bytes of their bodies."""
_MANY: Final = 100
"""Jobs that come from one call for many, so that they have ids of their own: seldom is such a push a repetition."""


class DatabaseAdapter:
    """Jobs in SQLite, PostgreSQL or MySQL/MariaDB."""

    schema_sql = staticmethod(sql)

    def __init__(
        self, dialect: Dialect, settings: DriverSettings | None = None, *, _bell: Bell | None = None
    ) -> None:
        settings = settings or DriverSettings()
        statements = Statements(dialect.name, settings.prefix, dialect.spelling, settings.testing)
        database = Database(dialect=dialect, settings=settings, statements=statements, bell=_bell or Bell())
        self._database = database
        self._pruning = Pruning(database)
        self._pushes = PushGroups(self._push_together, patience=DEADLINE)
        self._joined = self._new_joined()
        self._fronts = Fronts()
        self.capabilities = _CAPABILITIES
        self.migrations = Migrations(dialect, statements)
        self.stores = Stores(
            locker=DatabaseLocker(database),
            batches=DatabaseBatches(database),
            limiter=DatabaseLimiter(database),
            failed=DatabaseFailedStore(database),
            results=DatabaseResults(database),
            jobs=DatabaseJobs(database),
            schedules=DatabaseSchedules(database),
            workers=DatabaseWorkers(database),
            history=DatabaseHistory(database),
        )

    @classmethod
    def from_url(cls, url: str, settings: DriverSettings) -> Self:
        """``sqlite:///file.db``, ``postgresql://…``, ``mysql://…``. Raises ConfigError or MissingExtra."""
        return cls(dialect_from_url(url, settings), settings)

    def clone(self) -> Self:
        database = self._database
        return type(self)(database.dialect.clone(), database.settings, _bell=database.bell)

    async def open(self) -> None:
        """Connect. A new SQLite file gets its tables at once; a server gets them by `setup`."""
        await self._database.dialect.open()
        self._joined = self._new_joined()  # a claim may be expected still in an event loop that has ended
        self._fronts = Fronts()
        try:
            if self._database.dialect.creates and not await self.migrations.exists():
                await self.migrations.up()
            await self.migrations.require()
        except BaseException:
            await self._database.dialect.aclose()
            raise

    async def aclose(self) -> None:
        await self._database.dialect.aclose()

    async def setup(self, queues: Sequence[str]) -> None:  # noqa: ARG002  # the seam's; other drivers need them
        """Apply the migrations, opened or not. Queues need no preparation."""
        async with self.migrations.connected() as migrations:
            await migrations.up()

    async def push(self, envelopes: Sequence[Envelope], *, tx: object | None = None) -> Sequence[Pushed]:
        if tx is not None:
            return await self._database.within(tx, lambda transaction: push.push(transaction, envelopes))
        try:
            # A key may be held by an open transaction, whose end is waited for: no other push may wait with it.
            alone = any(one.unique for one in envelopes)
            return await (self._push_together(envelopes) if alone else self._pushes.push(envelopes))
        except OutcomeUnknown as error:
            raise DispatchUncertain(envelopes[0].id) from error

    async def _push_together(self, envelopes: Sequence[Envelope]) -> Sequence[Pushed]:
        async def body(tx: Transaction) -> Sequence[Pushed]:
            return await push.push(tx, envelopes, self._database.dialect.carried)

        async def hopeful(tx: Transaction) -> Sequence[Pushed]:
            return await push.push(tx, envelopes, self._database.dialect.carried, new=True)

        if any(one.unique and one.unique.mode == "lock" for one in envelopes):
            return await self._database.transact(body)
        if self._database.dialect.hopeful and len(envelopes) >= _MANY:
            with suppress(AlreadyThere):
                return await self._database.single(hopeful)
        return await self._database.single(body, brief=_is_brief(envelopes))

    async def claim(self, want: Want) -> Claimed:
        if not want.wait:
            joins = self._database.dialect.single and plain.claims(want)
            return (await (self._joined.claim(want) if joins else self._look(want))).claimed
        return await self._wait_and_claim(want)

    async def _wait_and_claim(self, want: Want) -> Claimed:
        loop = asyncio.get_running_loop()
        until = loop.time() + want.wait
        queues = [lane.queue for lane in want.lanes]
        with self._database.bell.listening(queues) as rung:
            while True:
                rung.clear()
                look = await self._claim_once(want)
                remaining = until - loop.time()
                if look.claimed.claims or look.claimed.lost or remaining <= 0:
                    return look.claimed
                if not await self._wait(rung, look, until, queues):
                    return look.claimed

    async def _wait(self, rung: asyncio.Event, look: Look, until: float, queues: list[str]) -> bool:
        """Wait until a claim could find something; False when the time is over first."""
        loop = asyncio.get_running_loop()
        waits = [seconds for seconds in (look.due_in, look.claimed.retry_after) if seconds is not None]
        due_at = loop.time() + min(waits, default=float("inf"))
        while not rung.is_set():
            now = loop.time()
            if now >= due_at:
                return True
            if now >= until:
                return False
            await self._database.dialect.change(rung, min(due_at, until) - now)
            if not rung.is_set() and loop.time() < due_at and await self._is_due(queues):
                return True
        return True

    async def _is_due(self, queues: list[str]) -> bool:
        """A look without the writer's lock, so that idle workers do not stand in each other's way."""

        async def body(tx: Transaction) -> bool:
            row = await tx.one("due", queues=queues)
            return bool(row and row["found"])

        return await self._database.read(body)

    async def _claim_once(self, want: Want) -> Look:
        """One claim. A call that may wait, and so be cancelled, runs to its end: what it took is handed back then."""
        return await to_its_end(self._look(want), lambda late: self._hand_back(late.claimed.claims))

    async def _look(self, want: Want) -> Look:
        async def short(tx: Transaction) -> Look | None:
            return await plain.claim(tx, want, self._fronts)

        async def body(tx: Transaction) -> Look:
            return await claim.claim(tx, want)

        look = await self._database.single(short) if self._database.dialect.single else None
        return await self._database.transact(body) if look is None else look

    async def _hand_back(self, claims: Sequence[Claim]) -> None:
        back = PutBack(0.0, counted=False)
        if claims:
            await self.settle([Settlement(claim=one, outcome=back) for one in claims])

    async def extend(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Renewal]:
        single = self._database.dialect.single
        renew = plain.extend if single else extend.extend

        async def body(tx: Transaction) -> Sequence[Renewal]:
            return await renew(tx, claims, lease)

        run = self._database.single if single else self._database.transact
        return await run(body, limit=min(DEADLINE, lease / 6))

    async def settle(
        self, settlements: Sequence[Settlement], *, tx: object | None = None
    ) -> Sequence[Settled]:
        async def body(transaction: Transaction) -> Sequence[Settled]:
            return await settle.settle(transaction, settlements)

        if tx is not None:
            return await self._database.within(tx, body)
        if self._database.dialect.single and plain.settles(settlements):
            settled = await self._settle_plain(settlements)
        else:
            settled = await self._database.transact(body)
        await self._pruning.in_passing()
        return settled

    def _new_joined(self) -> JoinedCalls:
        return JoinedCalls(self._look, self._settle_ends, self._settle_and_claim)

    async def _settle_plain(self, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        async def body(tx: Transaction) -> Sequence[Settled]:
            return await plain.settle(tx, settlements)

        if ends.just_end(settlements):
            return await self._joined.settle(settlements)
        return await self._database.single(body)

    async def _settle_ends(self, settlements: Sequence[Settlement]) -> Sequence[Settled]:
        async def body(tx: Transaction) -> Sequence[Settled]:
            return await ends.end(tx, settlements)

        return await self._database.single(body)

    async def _settle_and_claim(
        self, settlements: Sequence[Settlement], want: Want
    ) -> tuple[Sequence[Settled], Look | None]:
        async def body(tx: Transaction) -> tuple[Sequence[Settled], Look | None]:
            return await ends.end_and_claim(tx, settlements, want, self._fronts)

        return await self._database.single(body)

    async def depth(self, queues: Sequence[str]) -> Sequence[Depth]:
        async def body(tx: Transaction) -> Sequence[Depth]:
            rows = {row["queue"]: row for row in await tx.fetch("depth", queues=list(queues))}
            return [_depth(queue, rows[queue]) for queue in queues]

        return await self._database.read(body)

    async def doctor(self) -> Sequence[Finding]:
        found = list(await self._database.dialect.findings())
        for line in await self.migrations.status():
            level: Literal["ok", "warning"] = "ok" if line.state == "applied" else "warning"
            found.append(Finding(level, f"migration {line.version:03} {line.name} is {line.state}"))
        return found

    async def push_raw(self, queue: str, raw: bytes, *, job_id: str | None = None) -> Pushed:
        """Put bytes into the queue as a job, due now, whether they are an envelope or not."""
        job = raw_columns(raw, job_id or str(uuid.uuid4()), queue, "unreadable", max_attempts=4)

        async def body(tx: Transaction) -> Pushed:
            (pushed,) = await push.push_jobs(tx, [job])
            return pushed

        return await self._database.transact(body)

    async def audit(self) -> list[tuple[str, str, str, int, str]]:
        """Every transition so far, in order: (event, job id, token, attempt, extra). Testing mode only."""
        self._check_testing("there is an audit")

        async def body(tx: Transaction) -> list[tuple[str, str, str, int, str]]:
            return [
                (row["event"], row["job_id"], row["token"], row["attempt"], row["extra"])
                for row in await tx.fetch("audit")
            ]

        return await self._database.read(body)

    async def advance(self, seconds: float) -> None:
        """Move the store's clock forward, for every process that uses it. Testing mode only."""
        self._check_testing("the clock moves")

        async def body(tx: Transaction) -> None:
            await tx.execute("advance", seconds=seconds)

        await self._database.transact(body)
        self._database.bell.ring()

    def _check_testing(self, what: str) -> None:
        if not self._database.settings.testing:
            raise ConfigError(f"{what} in testing mode only: DriverSettings(testing=True).")


def _is_brief(envelopes: Sequence[Envelope]) -> bool:
    """A few jobs with small bodies; a chain's job carries those of all its links."""
    if len(envelopes) > _FEW or any(one.chain for one in envelopes):
        return False
    return sum(len(one.body) for one in envelopes) <= _SMALL


def _depth(queue: str, row: Any) -> Depth:
    return Depth(
        queue=queue,
        pending=row["pending"],
        delayed=row["delayed"],
        running=row["running"],
        oldest=row["oldest"],
    )
