"""Ordered migrations, each with its hash, under a lock.

A migration is two files, ``NNN_name.up.sql`` and ``NNN_name.down.sql``, in ``sql/<dialect>/migrations``. What
was applied stands in the table ``<prefix>_migrations``. Migrations only expand; what an older version of
nimbusq still needs is removed one minor version later, so that old and new workers run side by side.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal, Self

from nimbusq.errors import ConfigError, SchemaMismatch
from nimbusq_database.client import Client
from nimbusq_database.dialect import Dialect
from nimbusq_database.statements import Statements, migration_files

_TABLE: Final = (
    "create table if not exists {p}migrations "
    "(version integer primary key, name varchar(64) not null, sha256 char(64) not null, "
    "applied_at double precision not null)"
)
_LIST: Final = "select version, name, sha256, applied_at from {p}migrations order by version"
_ADD: Final = (
    "insert into {p}migrations (version, name, sha256, applied_at) values (:version, :name, :sha256, {clock})"
)
_REMOVE: Final = "delete from {p}migrations where version = :version"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema. sha256 is that of its up file."""

    version: int
    name: str
    up: str
    down: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.up.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    """A migration that the database has, and when it was applied (epoch seconds)."""

    version: int
    name: str
    sha256: str
    applied_at: float


@dataclass(frozen=True, slots=True)
class Status:
    """One line of `nimbusq migrate status`.

    changed: applied from a file that has changed since. unknown: applied by a newer nimbusq.
    """

    version: int
    name: str
    state: Literal["applied", "pending", "changed", "unknown"]
    applied_at: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan. sql: with the prefix filled in."""

    version: int
    name: str
    direction: Literal["up", "down"]
    sql: str


def load(dialect: str) -> Sequence[Migration]:
    """The migrations that this version of nimbusq brings, in order."""
    texts = migration_files(dialect)
    found = []
    for file, text in texts.items():
        if file.endswith(".up.sql"):
            stem = file.removesuffix(".up.sql")
            number, _, name = stem.partition("_")
            found.append(Migration(int(number), name, text, texts[f"{stem}.down.sql"]))
    return found


class Migrations:
    """The schema of one database."""

    def __init__(self, dialect: Dialect, statements: Statements) -> None:
        self._dialect = dialect
        self._statements = statements
        self._known = load(dialect.name)

    @property
    def latest(self) -> int:
        """The version that this nimbusq needs at least."""
        return self._known[-1].version

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Self]:
        """The same migrations on a connection of their own, whatever state the schema is in."""
        fresh = self._dialect.clone()
        await fresh.open()
        try:
            yield type(self)(fresh, self._statements)
        finally:
            await fresh.aclose()

    async def up(self, to: int | None = None) -> list[Applied]:
        """Apply what is missing, up to version `to`; what was applied now. Safe in many processes at once."""

        async def work(client: Client) -> list[Applied]:
            await self._execute(client, _TABLE)
            steps = self._up_steps(await self._applied(client), to)
            for step in steps:
                await self._apply(client, step)
            done = {step.version for step in steps}
            return [one for one in await self._applied(client) if one.version in done]

        return await self._dialect.exclusively(work)

    async def down(self, to: int) -> list[Step]:
        """Undo migrations above version `to`, newest first; 0 removes every table and all that is in them."""

        async def work(client: Client) -> list[Step]:
            await self._execute(client, _TABLE)
            steps = self._down_steps(await self._applied(client), to)
            for step in steps:
                await self._apply(client, step)
            return steps

        return await self._dialect.exclusively(work)

    async def plan(self, to: int | None = None) -> list[Step]:
        """What `up(to)`, or `down(to)` for a version below the present one, would run."""
        applied = await self._read()
        present = max((one.version for one in applied), default=0)
        return (
            self._down_steps(applied, to) if to is not None and to < present else self._up_steps(applied, to)
        )

    async def status(self) -> list[Status]:
        """Every migration, known or applied."""
        applied = {one.version: one for one in await self._read()}
        lines = [_status(migration, applied.pop(migration.version, None)) for migration in self._known]
        return lines + [Status(one.version, one.name, "unknown", one.applied_at) for one in applied.values()]

    async def check(self) -> None:
        """Raises SchemaMismatch unless every known migration is applied, from the same files."""
        wrong = [line for line in await self.status() if line.state in {"pending", "changed"}]
        if wrong:
            listed = ", ".join(f"{line.version:03} {line.name} is {line.state}" for line in wrong)
            raise SchemaMismatch(
                f"the schema does not fit this version of nimbusq ({listed}): run nimbusq migrate up."
            )

    async def require(self) -> None:
        """Raises SchemaMismatch when the schema is older than this version needs. A newer one may serve."""
        applied = await self._read()
        present = max((one.version for one in applied), default=0)
        if present < self.latest:
            state = f"is at version {present}" if applied else "does not exist"
            raise SchemaMismatch(
                f"the schema {state}, this nimbusq needs version {self.latest}: run nimbusq migrate up."
            )

    async def exists(self) -> bool:
        """Whether any migration was ever applied."""
        return bool(await self._read())

    async def _read(self) -> list[Applied]:
        async def work(client: Client) -> list[Applied]:
            known = await client.fetch(
                self._statements.get("migrations_exist"), {"name": f"{self._statements.prefix}_migrations"}
            )
            return await self._applied(client) if known else []

        return await self._dialect.read(work, limit=5.0)

    async def _applied(self, client: Client) -> list[Applied]:
        rows = await client.fetch(self._statements.compile(_LIST), {})
        return [Applied(row["version"], row["name"], row["sha256"], row["applied_at"]) for row in rows]

    async def _execute(self, client: Client, source: str, **parameters: object) -> None:
        await client.execute(
            self._statements.compile(source.replace("{clock}", self._dialect.spelling.clock)), parameters
        )

    async def _apply(self, client: Client, step: Step) -> None:
        for part in self._statements.compile(step.sql):
            await client.execute((part,), {})
        if step.direction == "down":
            await self._execute(client, _REMOVE, version=step.version)
            return
        migration = next(one for one in self._known if one.version == step.version)
        await self._execute(client, _ADD, version=step.version, name=step.name, sha256=migration.sha256)

    def _up_steps(self, applied: Sequence[Applied], to: int | None) -> list[Step]:
        done = {one.version for one in applied}
        return [
            Step(one.version, one.name, "up", self._statements.script(one.up))
            for one in self._known
            if one.version not in done and (to is None or one.version <= to)
        ]

    def _down_steps(self, applied: Sequence[Applied], to: int) -> list[Step]:
        downs = {one.version: one.down for one in self._known}
        above = [one for one in reversed(applied) if one.version > to]
        missing = [one for one in above if one.version not in downs]
        if missing:
            raise ConfigError(
                f"migration {missing[0].version:03} {missing[0].name} was applied by a newer nimbusq: "
                "only that version can undo it."
            )
        return [
            Step(one.version, one.name, "down", self._statements.script(downs[one.version])) for one in above
        ]


def sql(dialect: str, *, since: int = 0, prefix: str = "nimbusq") -> str:
    """The migrations after version `since` as one script, for people who run them by themselves.

    dialect: sqlite, postgres or mysql. Needs no connection. Raises ConfigError for an unknown dialect.
    """
    from nimbusq_database.urls import dialect_class

    chosen = dialect_class(dialect)
    statements = Statements(chosen.name, prefix, chosen.spelling)
    table = statements.script(_TABLE)
    pieces = [f"{table};\n"]
    for migration in load(chosen.name):
        if migration.version > since:
            add = _ADD.replace("{clock}", chosen.spelling.clock).replace(":version", str(migration.version))
            add = add.replace(":name", f"'{migration.name}'").replace(":sha256", f"'{migration.sha256}'")
            pieces += [statements.script(migration.up), f"{statements.script(add)};\n"]
    return "\n".join(pieces)


def _status(migration: Migration, applied: Applied | None) -> Status:
    if applied is None:
        return Status(migration.version, migration.name, "pending")
    state: Literal["applied", "changed"] = "applied" if applied.sha256 == migration.sha256 else "changed"
    return Status(migration.version, migration.name, state, applied.applied_at)
