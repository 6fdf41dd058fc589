-- Store what a worker says of itself, and add what its counters have gained since its last report to the totals.
--
-- uses     time
-- KEYS[1]  root
-- ARGV     1 testing · 2 id · 3 report (JSON, without counters) · 4 counters (JSON: queue -> counter -> number)
-- returns  nothing
--
-- Twice    the second report has gained nothing.

local FORGOTTEN_AFTER = 86400e6

local before = redis.call('HGET', root .. 'workers:counters', ARGV[2])
before = before and cjson.decode(before) or {}
for queue, counters in pairs(cjson.decode(ARGV[4])) do
  for counter, value in pairs(counters) do
    local gained = value - ((before[queue] or {})[counter] or 0)
    if gained ~= 0 then
      redis.call('HINCRBY', root .. 'workers:totals', queue .. ' ' .. counter, gained)
    end
  end
end
redis.call('HSET', root .. 'workers', ARGV[2], ARGV[3])
redis.call('HSET', root .. 'workers:counters', ARGV[2], ARGV[4])
redis.call('ZADD', root .. 'workers:seen', now, ARGV[2])
for _, id in ipairs(redis.call('ZRANGE', root .. 'workers:seen', '-inf', now - FORGOTTEN_AFTER, 'BYSCORE', 'LIMIT', 0, 100)) do
  redis.call('HDEL', root .. 'workers', id)
  redis.call('HDEL', root .. 'workers:counters', id)
  redis.call('ZREM', root .. 'workers:seen', id)
end
