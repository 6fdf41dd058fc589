"""The dialect of MySQL and MariaDB, on aiomysql, or on asyncmy where it is installed."""

from nimbusq_database.mysql.dialect import MysqlDialect

__all__ = ["MysqlDialect"]
