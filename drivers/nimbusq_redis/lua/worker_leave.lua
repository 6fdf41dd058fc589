-- Forget a worker; what it has done stays in the totals.
--
-- uses     time
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 id
-- returns  nothing

redis.call('HDEL', root .. 'workers', ARGV[2])
redis.call('HDEL', root .. 'workers:counters', ARGV[2])
redis.call('ZREM', root .. 'workers:seen', ARGV[2])
