"""What `nimbusq doctor` reads off a PostgreSQL server."""

from __future__ import annotations

from typing import Any, Final

from nimbusq.driver import Finding
from nimbusq_database.client import Client
from nimbusq_database.statements import Part

_OLDEST: Final = 120000
_LONG: Final = 60
"""Seconds that a transaction may stay open before it is told of: rows that died since cannot be removed."""

_SETTINGS: Final = (
    "select current_setting('server_version') as version, current_setting('server_version_num')::int as number, "
    "current_setting('synchronous_commit') as synchronous_commit, current_setting('fsync') as fsync, "
    "pg_is_in_recovery() as standby"
)
_OLDEST_TRANSACTION: Final = (
    "select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 as seconds "
    "from pg_stat_activity where backend_xmin is not null and pid <> pg_backend_pid() "
    "and datname = current_database() and backend_type = 'client backend'"
)


async def findings(client: Client) -> list[Finding]:
    """Version, durability, and transactions that keep dead rows alive."""
    (server,) = await client.fetch((Part(_SETTINGS, ()),), {})
    held = await hindrance(client)
    snapshot = Finding("warning", held) if held else Finding("ok", "no transaction is open for long")
    return [_version(server), *_durability(server), snapshot]


async def hindrance(client: Client) -> str | None:
    """A transaction that has been open for so long that claims step over many dead rows, if there is one."""
    (oldest,) = await client.fetch((Part(_OLDEST_TRANSACTION, ()),), {})
    if oldest["seconds"] <= _LONG:
        return None
    return (
        f"a transaction has been open for {oldest['seconds']:.0f} s, so that no dead row can be removed. "
        "See pg_stat_activity.xact_start."
    )


def _version(server: Any) -> Finding:
    if server["number"] < _OLDEST:
        return Finding("error", f"PostgreSQL {server['version']} is too old: 12 or later is needed")
    return Finding("ok", f"PostgreSQL {server['version']}")


def _durability(server: Any) -> list[Finding]:
    found = []
    if server["standby"]:
        found.append(Finding("error", "this server is a standby: nothing can be stored"))
    if server["fsync"] == "off":
        found.append(Finding("error", "fsync=off: a power cut may destroy the database"))
    if server["synchronous_commit"] == "off":
        found.append(
            Finding("error", "synchronous_commit=off: a crash of the server loses acknowledged jobs")
        )
    return found or [Finding("ok", "commits reach the disk")]
