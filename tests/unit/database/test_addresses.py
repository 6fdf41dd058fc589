"""URLs of the three dialects."""

from __future__ import annotations

import sys

import pytest

from nimbusq.driver import DriverSettings
from nimbusq.errors import ConfigError, MissingExtra
from nimbusq_database import DatabaseAdapter
from nimbusq_database.mysql.address import MysqlAddress
from nimbusq_database.postgres.address import PostgresAddress
from nimbusq_database.sqlite.file import SqliteFile


@pytest.mark.parametrize(
    ("url", "path", "synchronous"),
    [
        ("sqlite:///jobs.db", "jobs.db", "normal"),
        ("sqlite:////var/jobs.db", "/var/jobs.db", "normal"),
        ("sqlite:///a%20b.db?synchronous=FULL", "a b.db", "full"),
    ],
)
def test_sqlite(url: str, path: str, synchronous: str) -> None:
    assert SqliteFile.from_url(url) == SqliteFile(path, synchronous)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://host/x",
        "sqlite:///x?mode=ro",
        "sqlite:///x?synchronous=1",
    ],
)
def test_a_bad_sqlite_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        SqliteFile.from_url(url)


def test_postgres_keeps_what_is_not_its_own() -> None:
    address = PostgresAddress.from_url("postgres://me:secret@db:5432/shop?sslmode=require&pool_size=3")
    assert address.dsn == "postgresql://me:secret@db:5432/shop?sslmode=require"
    assert address.pool_size == 3
    assert address.listen
    assert "secret" not in address.shown


def test_postgres_behind_a_pooler_does_not_listen() -> None:
    address = PostgresAddress.from_url("postgresql://db/shop?statement_cache_size=0")
    assert address.pooled
    assert not address.listen


@pytest.mark.parametrize("option", ["pool_size=0", "pool_size=x", "statement_cache_size=-1", "listen=maybe"])
def test_a_bad_postgres_option_is_refused(option: str) -> None:
    with pytest.raises(ConfigError):
        PostgresAddress.from_url(f"postgresql://db/shop?{option}")


def test_mysql() -> None:
    address = MysqlAddress.from_url("mysql://me:se%40cret@db:3307/shop?pool_size=4")
    assert (address.options["host"], address.options["port"]) == ("db", 3307)
    assert address.options["password"] == "se@cret"  # of no use anywhere
    assert address.pool_size == 4
    assert "cret" not in address.shown + repr(address)


@pytest.mark.parametrize(
    "url", ["mysql://db", "mysql://db/x?nope=1", "mysql://db/x?pool_size=0", "mysql://db/x?ssl_mode=y"]
)
def test_a_bad_mysql_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        MysqlAddress.from_url(url)


def test_mysql_encrypts_when_it_is_asked_to() -> None:
    assert MysqlAddress.from_url("mysql://db/x").options["ssl"] is None
    assert MysqlAddress.from_url("mysql://db/x?ssl_mode=verify-full").options["ssl"].check_hostname


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("postgresql://db/x", "asyncpg", "postgres"), ("mysql://db/x", "aiomysql", "mysql")],
)
def test_a_missing_client_names_its_extra(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"nimbusq_database.{extra}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'nimbusq\[{extra}\]'"):
        DatabaseAdapter.from_url(url, DriverSettings())


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="oracle"):
        DatabaseAdapter.from_url("oracle://db/x", DriverSettings())
