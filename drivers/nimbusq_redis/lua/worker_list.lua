-- The workers that have reported lately.
--
-- uses     time many
-- KEYS[1]  root
-- ARGV     1 testing · 2 greatest age of a report (seconds)
-- returns  for each worker: report, counters, time of the report

local seen = redis.call('ZRANGE', root .. 'workers:seen', now - micros(ARGV[2]), '+inf', 'BYSCORE', 'WITHSCORES')
local reply, ids = {}, {}
for i = 1, #seen, 2 do
  ids[#ids + 1] = seen[i]
end
local reports, counters = get_many(root .. 'workers', ids), get_many(root .. 'workers:counters', ids)
for i = 1, #ids do
  if reports[i] then
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = reports[i], counters[i] or '{}', seen[2 * i]
  end
end
return reply
