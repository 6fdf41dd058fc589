"""What asyncpg's errors mean to a caller."""

from __future__ import annotations

import asyncpg
import pytest

from nimbusq.errors import StoreError, StoreFull, StoreUnavailable
from nimbusq_database.failures import AlreadyThere
from nimbusq_database.postgres.failures import leaves_connection_sound, translated

UNAVAILABLE = [
    ConnectionResetError("reset"),
    TimeoutError(),
    asyncpg.InterfaceError("the connection is closed"),
    asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
    asyncpg.CannotConnectNowError("the database system is starting up"),
    asyncpg.AdminShutdownError("terminating connection"),
    asyncpg.TooManyConnectionsError("too many clients"),
    asyncpg.ReadOnlySQLTransactionError("read only"),
]


@pytest.mark.parametrize("error", UNAVAILABLE, ids=lambda error: type(error).__name__)
def test_what_another_try_may_mend(error: Exception) -> None:
    with pytest.raises(StoreUnavailable) as caught, translated("db"):
        raise error
    assert caught.value.__cause__ is error


def test_what_no_other_try_mends() -> None:
    with pytest.raises(StoreFull), translated("db"):
        raise asyncpg.DiskFullError("no space")
    with pytest.raises(StoreError) as caught, translated("db"):
        raise asyncpg.UndefinedTableError("no such table")
    assert type(caught.value) is StoreError
    with pytest.raises(AlreadyThere), translated("db"):
        raise asyncpg.UniqueViolationError("twice")


def test_a_connection_is_kept_only_where_the_server_has_said_no() -> None:
    assert leaves_connection_sound(asyncpg.UniqueViolationError("twice"))
    assert not any(leaves_connection_sound(error) for error in UNAVAILABLE[:4])
    assert not leaves_connection_sound(asyncpg.ConnectionDoesNotExistError("gone"))
