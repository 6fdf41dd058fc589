-- A page of ended jobs, newest first.
--
-- uses     time many
-- KEYS[1]  root
-- ARGV     1 testing · 2 ttl (seconds) · 3 cursor (time of the last one shown), or '' · 4 limit
-- returns  the next cursor ('' at the end), then for each row: ref, time, row

local limit = tonumber(ARGV[4])
local found = redis.call('ZRANGE', root .. 'history:at', ARGV[3] == '' and '+inf' or '(' .. ARGV[3],
  '(' .. string.format('%.0f', now - micros(ARGV[2])), 'BYSCORE', 'REV', 'LIMIT', 0, limit + 1, 'WITHSCORES')
local refs = {}
for i = 1, math.min(#found, 2 * limit), 2 do
  refs[#refs + 1] = found[i]
end
local page = { #found > 2 * limit and found[2 * limit] or '' }
for i, row in ipairs(get_many(root .. 'history', refs)) do
  local n = #page
  page[n + 1], page[n + 2], page[n + 3] = refs[i], found[2 * i], row or ''
end
return page
