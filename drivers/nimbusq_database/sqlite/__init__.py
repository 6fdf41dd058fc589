"""The SQLite dialect: one file, several processes, one writer at a time."""

from nimbusq_database.sqlite.dialect import SqliteDialect

__all__ = ["SqliteDialect"]
