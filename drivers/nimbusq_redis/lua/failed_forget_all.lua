-- Forget failed records, the oldest first, in portions.
--
-- uses     time many records
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 index ('at' or 'queue:<queue>') · 3 only those of at least that age (seconds; '' for all) ·
--          4 portion
-- returns  how many there were in this portion

local latest = ARGV[3] == '' and '+inf' or now - micros(ARGV[3])
local refs = redis.call('ZRANGE', root .. 'failed:' .. ARGV[2], '-inf', latest, 'BYSCORE', 'LIMIT', 0, ARGV[4])
for _, ref in ipairs(refs) do
  forget_failed(ref)
end
return #refs
