"""The database driver: SQLite, PostgreSQL and MySQL/MariaDB, one driver over three dialects."""

from nimbusq_database.adapter import DatabaseAdapter

__all__ = ["DatabaseAdapter"]
