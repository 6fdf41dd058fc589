-- All schedules.
--
-- uses     time
-- KEYS[1]  root
-- ARGV     1 testing
-- returns  for each schedule: name, spec, last tick, '1' if it is paused

local reply, specs = {}, redis.call('HGETALL', root .. 'schedules')
for i = 1, #specs, 2 do
  local n = #reply
  reply[n + 1], reply[n + 2] = specs[i], specs[i + 1]
  reply[n + 3] = redis.call('HGET', root .. 'schedules:ticks', specs[i]) or ''
  reply[n + 4] = redis.call('SISMEMBER', root .. 'schedules:paused', specs[i]) == 1 and '1' or '0'
end
return reply
