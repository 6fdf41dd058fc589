"""dramatiq on PostgreSQL, by dramatiq-pg."""

from __future__ import annotations

from contextlib import closing

import psycopg2
from dramatiq import Broker
from dramatiq.middleware import default_middleware
from dramatiq_pg import PostgresBroker
from dramatiq_pg.schema import generate_init_sql

from benchmarks.peers.dramatiq import DramatiqRedis, blocking_nap


class DramatiqPostgres(DramatiqRedis):
    nap = staticmethod(blocking_nap)

    def make_broker(self) -> Broker:
        middleware = [each() for each in default_middleware if each.__name__ != "Prometheus"]
        return PostgresBroker(url=self.place.url, results=False, middleware=middleware)

    async def install(self) -> None:
        with closing(psycopg2.connect(self.place.url)) as connection, connection:
            connection.cursor().execute(generate_init_sql())
