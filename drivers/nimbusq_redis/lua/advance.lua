-- Testing mode only: let time pass, for the store's clock and for every key that has a time to live; then wake who
-- waits.
--
-- uses     time many job bell queues
-- KEYS[1]  root
-- ARGV     1 testing ('1') · 2 seconds
-- returns  nothing

local passed = micros(ARGV[2])
local cursor = '0'
repeat
  local found = redis.call('SCAN', cursor, 'MATCH', root .. '*', 'COUNT', 1000)
  cursor = found[1]
  for _, key in ipairs(found[2]) do
    local left = redis.call('PTTL', key)
    if left > 0 then
      redis.call('PEXPIRE', key, math.floor(left - passed / 1000)) -- one that is over deletes the key
    end
  end
until cursor == '0'
redis.call('SET', root .. 'skew', string.format('%.0f', now - (tonumber(clock[1]) * 1e6 + tonumber(clock[2])) + passed))
for _, name in ipairs(redis.call('ZRANGE', root .. 'timers', 0, -1)) do
  ring(string.sub(name, 3))
end
