"""The database driver: SQLite, PostgreSQL and MySQL/MariaDB, one driver over three dialects."""
