"""The servers of one run, started by scripts/services apart from any other run's, and fresh places on them."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from benchmarks.catalogue import Driver
from benchmarks.peer import Place

SERVICES: Final = Path(__file__).parent.parent / "scripts" / "services"
DATA: Final = Path(tempfile.gettempdir()) / f"nimbusq-benchmarks-{os.getuid()}"
"""Not under the home folder: started by root, PostgreSQL and MariaDB are users that cannot read there."""
SERVICE_OF: Final[dict[Driver, str]] = {
    "redis": "redis",
    "postgres": "postgres",
    "mariadb": "mariadb",
    "kafka": "kafka",
    "sqs": "elasticmq",
}
VARIABLE_OF: Final[dict[Driver, str]] = {
    "redis": "REDIS_URL",
    "postgres": "DATABASE_URL_POSTGRES",
    "mariadb": "DATABASE_URL_MYSQL",
    "kafka": "KAFKA_BROKERS",
    "sqs": "SQS_ENDPOINT_URL",
}


class Servers:
    """Every commit reaches the disk, but for Redis, which writes nothing unless `appendfsync` is asked for, and
    Kafka, which by default leaves that to its replicas and the operating system.

    On SQLite each measurement has a new file; on a server a new database (PostgreSQL, MariaDB), an emptied
    server (Redis) or a new name (Kafka, SQS).
    """

    def __init__(self, folder: Path, *, appendfsync: str | None = None) -> None:
        self._folder = folder
        self._appendfsync = appendfsync
        self._names = (f"bench{os.getpid():x}n{number}" for number in count(int(time.time())))
        self._urls: dict[str, str] = {}

    def start(self, drivers: Sequence[Driver]) -> None:
        """Start what these drivers need and is not running yet."""
        wanted = [SERVICE_OF[driver] for driver in drivers if driver in SERVICE_OF]
        for service in wanted:
            self._urls |= _exports(self._services("start", service))
        if wanted:
            os.environ.update({name: url for name, url in self._urls.items() if name.startswith("AWS_")})
        if "redis" in drivers:
            self._set_persistence()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Stop them all; their data stays."""
        self._services("stop")

    def restart_with_statistics(self) -> None:
        """PostgreSQL counts statements from now on, in pg_stat_statements."""
        _postgres(self._url("postgres"), "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        self._services("stop", "postgres")
        self.start(["postgres"])

    def fresh(self, driver: Driver) -> Place:
        """An empty place that no measurement has used, of this run or an earlier one: Kafka keeps its topics."""
        name = next(self._names)
        return Place(driver=driver, url=_MAKERS[driver](self, name), name=name)

    def _url(self, driver: Driver) -> str:
        return self._urls[VARIABLE_OF[driver]]

    def _services(self, *arguments: str) -> str:
        fsync = "0" if "kafka" in arguments else "1"
        run = os.environ | {"NIMBUSQ_SERVICES_RUN": str(DATA), "NIMBUSQ_SERVICES_FSYNC": fsync}
        return subprocess.run(
            [SERVICES, *arguments], env=run, check=True, text=True, stdout=subprocess.PIPE
        ).stdout

    def _set_persistence(self) -> None:
        import redis

        with redis.Redis.from_url(self._url("redis")) as client:
            client.config_set("appendonly", "yes" if self._appendfsync else "no")
            client.config_set("appendfsync", self._appendfsync or "no")

    def _file(self, name: str) -> str:
        for old in self._folder.glob("bench*.db*"):
            old.unlink()
        return f"sqlite:///{self._folder / name}.db"

    def _emptied_redis(self, _: str) -> str:
        import redis

        with redis.Redis.from_url(self._url("redis")) as client:
            client.flushall()
            client.config_resetstat()
        return self._url("redis")

    def _postgres_database(self, name: str) -> str:
        url = self._url("postgres")
        old = _postgres(url, "SELECT datname FROM pg_database WHERE datname LIKE 'bench%'")
        _postgres(url, *[f"DROP DATABASE {each} WITH (FORCE)" for each in old], f"CREATE DATABASE {name}")
        return urlsplit(url)._replace(path=f"/{name}").geturl()

    def _mariadb_database(self, name: str) -> str:
        url = self._url("mariadb")
        old = _mariadb(url, "SHOW DATABASES LIKE 'bench%'")
        _mariadb(
            url, *[f"DROP DATABASE {each}" for each in old], f"CREATE DATABASE {name} CHARACTER SET utf8mb4"
        )
        return urlsplit(url)._replace(path=f"/{name}").geturl()

    def _named_on_kafka(self, _: str) -> str:
        return self._url("kafka")

    def _named_on_sqs(self, _: str) -> str:
        return self._url("sqs")


_MAKERS: Final[dict[Driver, Callable[[Servers, str], str]]] = {
    "redis": Servers._emptied_redis,
    "postgres": Servers._postgres_database,
    "sqlite": Servers._file,
    "mariadb": Servers._mariadb_database,
    "kafka": Servers._named_on_kafka,
    "sqs": Servers._named_on_sqs,
}


def _exports(text: str) -> dict[str, str]:
    """The variables of lines such as ``export A=1 B=2``."""
    return dict(re.findall(r"(\w+)=(\S+)", text))


def _postgres(url: str, *statements: str) -> list[str]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        rows: list[str] = []
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = [row[0] for row in cursor] if cursor.description else []
        return rows


def _mariadb(url: str, *statements: str) -> list[str]:
    import pymysql  # aiomysql's own client

    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or ""
    )
    with connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return [row[0] for row in cursor.fetchall()]
