"""The PostgreSQL dialect, on asyncpg."""

from nimbusq_database.postgres.dialect import PostgresDialect

__all__ = ["PostgresDialect"]
