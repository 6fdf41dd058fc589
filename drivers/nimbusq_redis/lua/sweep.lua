-- Repair leases: a job that is running but stands in no queue's leased set (an entry was deleted or evicted, a dump
-- restored in part) would never be taken back. Counts first, and looks at single jobs only where they differ.
--
-- uses     time many job bell queues
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 milliseconds between two sweeps, of whichever worker
-- returns  how many jobs were repaired: their leases are over now

if not redis.call('SET', root .. 'swept', '1', 'NX', 'PX', ARGV[2]) then
  return 0
end

local listed = 0
for _, name in ipairs(redis.call('ZRANGE', root .. 'timers', 0, -1)) do
  if string.sub(name, 1, 2) == 'l:' then
    listed = listed + redis.call('ZCARD', root .. 'leased:' .. string.sub(name, 3))
  end
end
if redis.call('HLEN', running_key) <= listed then
  return 0
end

local repaired = 0
local entries = redis.call('HGETALL', running_key)
for i = 1, #entries, 2 do
  local ref, state = entries[i], unpack_state(entries[i + 1])
  local key = root .. 'leased:' .. state.queue
  if redis.call('ZADD', key, 'NX', now, ref) == 1 then
    repaired = repaired + 1
  end
  retime('l:', state.queue, key)
end
return repaired
