"""Named locks: SET NX PX, and a token that must match. Unique locks of jobs stand among them."""

from __future__ import annotations

import math
import secrets

from nimbusq_redis.link import Link


class RedisLocker:
    """`nimbusq.driver.Locker` in Redis."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def acquire(self, key: str, ttl: float) -> str | None:
        token = secrets.token_hex(16)
        taken = await self._link.command("SET", self._key(key), token, "NX", "PX", _milliseconds(ttl))
        return token if taken else None

    async def extend(self, key: str, token: str, ttl: float) -> bool:
        return bool(await self._link.run("lock_change", key, token, _milliseconds(ttl)))

    async def release(self, key: str, token: str) -> bool:
        return bool(await self._link.run("lock_change", key, token, ""))

    async def force_release(self, key: str) -> bool:
        return bool(await self._link.command("DEL", self._key(key)))

    async def holder(self, key: str) -> str | None:
        token = await self._link.command("GET", self._key(key))
        return token.decode() if token is not None else None

    def _key(self, key: str) -> str:
        return self._link.key(f"lock:{key}")


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))
