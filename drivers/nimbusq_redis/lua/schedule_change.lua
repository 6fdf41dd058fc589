-- Pause a schedule, let it go on, or forget it. Letting it go on moves it to now: what it missed meanwhile is not
-- caught up.
--
-- uses     time
-- KEYS[1]  root
-- ARGV     1 testing · 2 name · 3 'pause', 'resume' or 'forget'
-- returns  1, or 0 where it is unknown

if redis.call('HEXISTS', root .. 'schedules', ARGV[2]) == 0 then
  return 0
end
if ARGV[3] == 'pause' then
  redis.call('SADD', root .. 'schedules:paused', ARGV[2])
  return 1
end
local was_paused = redis.call('SREM', root .. 'schedules:paused', ARGV[2]) == 1
if ARGV[3] == 'resume' and was_paused and tonumber(redis.call('HGET', root .. 'schedules:ticks', ARGV[2])) < now then
  redis.call('HSET', root .. 'schedules:ticks', ARGV[2], string.format('%.0f', now))
end
if ARGV[3] == 'forget' then
  redis.call('HDEL', root .. 'schedules', ARGV[2])
  redis.call('HDEL', root .. 'schedules:ticks', ARGV[2])
end
return 1
