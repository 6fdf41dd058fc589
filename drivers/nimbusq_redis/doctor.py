"""Is this server fit to keep jobs? Its version, its memory policy, its durability, its clock."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nimbusq.driver import Finding
from nimbusq.errors import StoreError
from nimbusq_redis.link import Link

_OLDEST: Final = (7, 0, 0)
_PATCHED: Final = ((7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2))
"""The first version of each branch that has CVE-2025-49844 and the Lua faults found with it repaired."""
_SKEW: Final = 1.0


async def examine(link: Link) -> Sequence[Finding]:
    """One finding for each question."""
    server, memory, persistence = [_fields(await link.command("INFO", section)) for section in _SECTIONS]
    return [
        *_version(server),
        _memory(memory),
        _durability(persistence),
        await _lazy_expiry(link),
        await _clock(link),
    ]


_SECTIONS: Final = ("server", "memory", "persistence")


def _fields(info: Mapping[str, Any] | bytes) -> dict[str, str]:
    """INFO as text, or read already by redis-py's cluster client."""
    if isinstance(info, Mapping):
        return {name: str(value) for name, value in info.items()}
    lines = info.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _version(server: Mapping[str, str]) -> list[Finding]:
    if "valkey_version" in server:
        return [Finding("ok", f"Valkey {server['valkey_version']}")]
    text = server.get("redis_version", "0")
    version = tuple(int(part) for part in text.split(".")[:3] if part.isdecimal())
    if version < _OLDEST:
        return [Finding("error", f"Redis {text} is too old: nimbusq needs 7.0 or later (scripts with flags)")]
    branch = [patched for patched in _PATCHED if patched[:2] == version[:2]]
    if version < _PATCHED[-1] and not (branch and version >= branch[0]):
        return [
            Finding(
                "warning",
                f"Redis {text} may lack the repair of CVE-2025-49844 (code execution by whoever may run scripts): "
                "use 7.2.11, 7.4.6, 8.0.4, 8.2.2 or later, or a distribution that has patched it",
            )
        ]
    return [Finding("ok", f"Redis {text}")]


def _memory(memory: Mapping[str, str]) -> Finding:
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        return Finding(
            "error",
            f"maxmemory-policy is {policy}: jobs are thrown away when memory is short. Set noeviction",
        )
    return Finding("ok", "maxmemory-policy is noeviction")


def _durability(persistence: Mapping[str, str]) -> Finding:
    if persistence.get("aof_enabled") != "1":
        return Finding(
            "warning", "appendonly is off: a crash of the server loses its jobs. Set appendonly yes"
        )
    if persistence.get("aof_last_write_status", "ok") != "ok":
        return Finding(
            "error", "the last write of the append-only file failed: look at the server's disk and log"
        )
    return Finding("ok", "appendonly is on")


async def _lazy_expiry(link: Link) -> Finding:
    try:
        reply = await link.command("CONFIG", "GET", "lazyfree-lazy-expire")
    except StoreError:
        return Finding("ok", "lazyfree-lazy-expire: the server does not tell (CONFIG is not allowed)")
    values = reply if isinstance(reply, Mapping) else dict(zip(reply[::2], reply[1::2], strict=True))
    setting = next(iter(values.values()), b"no")
    if setting in {b"yes", "yes"}:
        return Finding("ok", "lazyfree-lazy-expire is on")
    return Finding(
        "ok", "lazyfree-lazy-expire is off: worth setting to yes above some thousand jobs a second"
    )


async def _clock(link: Link) -> Finding:
    before = time.time()
    seconds, micros = await link.command("TIME")
    ahead = int(seconds) + int(micros) / 1e6 - (before + time.time()) / 2
    if abs(ahead) > _SKEW:
        return Finding(
            "warning",
            f"the server's clock is {ahead:+.1f} s away from this machine's; only the server's decides",
        )
    return Finding("ok", f"the server's clock is {ahead:+.3f} s away from this machine's")
