-- Move a schedule's last tick forward and push, in one step.
--
-- uses     time many audit job pushed bell queues tombstones unique enqueue
-- KEYS[1]  root
-- ARGV     1 testing · 2 name · 3 tick (microseconds) · 4 ref · 5 queue · 6 control · 7 wire
-- returns  '' or the ref of the job that holds its unique key; nothing where the tick is not later, or it is paused
--
-- Twice    the second call is not later.

local last = redis.call('HGET', root .. 'schedules:ticks', ARGV[2])
if not last or tonumber(ARGV[3]) <= tonumber(last)
  or redis.call('SISMEMBER', root .. 'schedules:paused', ARGV[2]) == 1 then
  return false
end
redis.call('HSET', root .. 'schedules:ticks', ARGV[2], ARGV[3])
return enqueue({ ARGV[4], ARGV[5], ARGV[6], ARGV[7] })[1]
