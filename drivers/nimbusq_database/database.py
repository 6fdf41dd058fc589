"""What the verbs and all stores of one adapter share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from nimbusq.driver import DriverSettings
from nimbusq_database.adopted import adopt
from nimbusq_database.bell import Bell
from nimbusq_database.client import Client
from nimbusq_database.dialect import Dialect
from nimbusq_database.statements import Statements
from nimbusq_database.transaction import Transaction

T = TypeVar("T")
Body: TypeAlias = Callable[[Transaction], Awaitable[T]]

DEADLINE: Final = 5.0
"""Seconds that a call may take, unless its caller says otherwise."""


@dataclass(slots=True, kw_only=True)
class Database:
    """One dialect, its statements, and the bell of this process."""

    dialect: Dialect
    settings: DriverSettings
    statements: Statements
    bell: Bell = field(default_factory=Bell)

    def __post_init__(self) -> None:
        self.dialect.heard = self.bell.ring

    async def transact(self, body: Body[T], *, limit: float = DEADLINE) -> T:
        """Run `body` in one transaction and wake whom it concerns after the commit."""
        answer, tx = await self.dialect.transact(self._whole(body), limit=limit)
        self._tell(tx)
        return answer

    async def single(self, body: Body[T], *, limit: float = DEADLINE, brief: bool = False) -> T:
        """Run `body`, whose one statement needs no transaction around it (it gets one for its audit)."""
        whole, dialect = self._whole(body), self.dialect
        if self.settings.testing:
            answer, tx = await dialect.transact(whole, limit=limit)
        else:
            answer, tx = await dialect.run(whole, limit=limit, brief=brief)
        self._tell(tx)
        return answer

    async def read(self, body: Body[T], *, limit: float = DEADLINE) -> T:
        """Run `body`, which changes nothing."""
        answer, _ = await self.dialect.read(self._whole(body), limit=limit)
        return answer

    async def within(self, tx: object, body: Body[T]) -> T:
        """Run `body` in the application's own transaction; nobody is woken before its commit."""
        client, style = await adopt(tx, self.dialect.name)
        transaction = Transaction(client, self.statements, audited=self.settings.testing, style=style)
        answer = await body(transaction)
        await transaction.finish()
        await self.dialect.announce_within(transaction)
        return answer

    def _whole(self, body: Body[T]) -> Callable[[Client], Awaitable[tuple[T, Transaction]]]:
        async def whole(client: Client) -> tuple[T, Transaction]:
            tx = Transaction(client, self.statements, audited=self.settings.testing)
            answer = await body(tx)
            await tx.finish()
            return answer, tx

        return whole

    def _tell(self, tx: Transaction) -> None:
        if tx.topics:
            self.bell.ring(tx.topics)
            self.dialect.announce(tx.topics - tx.told)
