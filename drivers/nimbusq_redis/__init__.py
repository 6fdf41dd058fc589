"""The redis driver: Redis and Valkey, one Lua script a transition."""
