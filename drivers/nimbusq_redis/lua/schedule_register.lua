-- Store a schedule's description; a new schedule starts with last_tick = now.
--
-- uses     time
-- KEYS[1]  root
-- ARGV     1 testing · 2 name · 3 spec (JSON)
-- returns  last tick (microseconds), '1' if it is paused

redis.call('HSET', root .. 'schedules', ARGV[2], ARGV[3])
redis.call('HSETNX', root .. 'schedules:ticks', ARGV[2], string.format('%.0f', now))
return { redis.call('HGET', root .. 'schedules:ticks', ARGV[2]),
  redis.call('SISMEMBER', root .. 'schedules:paused', ARGV[2]) == 1 and '1' or '0' }
