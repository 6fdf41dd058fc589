"""What `nimbusq doctor` reads off a MySQL or MariaDB server."""

from __future__ import annotations

import re
from typing import Final

from nimbusq.driver import Finding
from nimbusq_database.client import Client
from nimbusq_database.statements import Part

_OLDEST_MARIADB: Final = (10, 6)
_OLDEST_MYSQL: Final = (8, 0)
_SETTINGS: Final = (
    "select version() as version, @@global.read_only as read_only, "
    "@@global.innodb_flush_log_at_trx_commit as flush, @@global.max_allowed_packet as packet"
)


async def version(client: Client) -> str:
    """The server's own words: ``10.11.6-MariaDB-…``."""
    (row,) = await client.fetch((Part("select version() as version", ()),), {})
    return str(row["version"])


def too_old(version: str) -> str | None:
    """Why this server cannot be used, if it cannot."""
    name, oldest = ("MariaDB", _OLDEST_MARIADB) if "mariadb" in version.lower() else ("MySQL", _OLDEST_MYSQL)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < oldest:
        needed = ".".join(map(str, oldest))
        return f"{name} {version} cannot skip locked rows: nimbusq needs {name} {needed} or later."
    return None


async def findings(client: Client) -> list[Finding]:
    """Version and durability."""
    (server,) = await client.fetch((Part(_SETTINGS, ()),), {})
    wrong = too_old(server["version"])
    found = [Finding("error", wrong) if wrong else Finding("ok", f"server version {server['version']}")]
    if server["read_only"]:
        found.append(Finding("error", "read_only=on: nothing can be stored"))
    if server["flush"] != 1:
        found.append(
            Finding(
                "error",
                f"innodb_flush_log_at_trx_commit={server['flush']}: a crash of the host loses acknowledged jobs",
            )
        )
    if server["packet"] < 4 * 1024 * 1024:
        found.append(Finding("warning", f"max_allowed_packet={server['packet']}: large jobs will be refused"))
    return found
