"""The redis driver: Redis and Valkey, one Lua script a transition."""

from nimbusq_redis.adapter import RedisAdapter
from nimbusq_redis.options import RedisOptions

__all__ = ["RedisAdapter", "RedisOptions"]
