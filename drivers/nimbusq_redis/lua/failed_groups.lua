-- Failures by cause.
--
-- uses     time
-- KEYS[1]  root
-- ARGV     1 testing
-- returns  for each fingerprint: fingerprint, count, time of the first, time of the last, record of the last

local reply = {}
for _, print in ipairs(redis.call('ZRANGE', root .. 'failed:prints', 0, -1)) do
  local key, n = root .. 'failed:print:' .. print, #reply
  local first, last = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES'), redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  reply[n + 1], reply[n + 2] = print, redis.call('ZCARD', key)
  reply[n + 3], reply[n + 4] = first[2], last[2]
  reply[n + 5] = redis.call('HGET', root .. 'failed', last[1]) or ''
end
return reply
