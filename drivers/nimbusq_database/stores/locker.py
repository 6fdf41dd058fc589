"""Named locks with a time to live: a row a lock, free once its time is over."""

from __future__ import annotations

import secrets

from nimbusq_database.database import Database
from nimbusq_database.job_row import key_digest
from nimbusq_database.transaction import Transaction


class DatabaseLocker:
    """`nimbusq.driver.Locker`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, key: str, ttl: float) -> str | None:
        token, digest = secrets.token_hex(16), key_digest(key)

        async def body(tx: Transaction) -> str | None:
            await tx.insert("locks_take", [{"digest": digest, "token": token, "ttl": ttl}])
            held = await tx.one("locks_held", digests=[digest])
            return token if held and held["token"] == token else None

        return await self._database.transact(body)

    async def extend(self, key: str, token: str, ttl: float) -> bool:
        return await self._changed("lock_extend", digest=key_digest(key), token=token, ttl=ttl)

    async def release(self, key: str, token: str) -> bool:
        return await self._changed("lock_release", digest=key_digest(key), token=token)

    async def force_release(self, key: str) -> bool:
        return await self._changed("lock_drop", digest=key_digest(key))

    async def holder(self, key: str) -> str | None:
        async def body(tx: Transaction) -> str | None:
            row = await tx.one("locks_held", digests=[key_digest(key)])
            return row["token"] if row else None

        return await self._database.read(body)

    async def _changed(self, statement: str, **parameters: object) -> bool:
        async def body(tx: Transaction) -> bool:
            return bool(await tx.execute(statement, **parameters))

        return await self._database.transact(body)
