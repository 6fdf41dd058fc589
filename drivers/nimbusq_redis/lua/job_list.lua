-- A page of one of a queue's sets.
--
-- uses     time many job bell queues
-- KEYS[1]  root
-- ARGV     1 testing · 2 place · 3 queue · 4 cursor (score of the last one shown), or '' · 5 limit
-- returns  now, the next cursor ('' at the end), then for each job: ref, record, score, state (JSON)

local limit = tonumber(ARGV[5])
local found = redis.call('ZRANGE', root .. ARGV[2] .. ':' .. ARGV[3], ARGV[4] == '' and '-inf' or '(' .. ARGV[4], '+inf',
  'BYSCORE', 'LIMIT', 0, limit + 1, 'WITHSCORES')
local refs = {}
for i = 1, math.min(#found, 2 * limit), 2 do
  refs[#refs + 1] = found[i]
end
local page = { now, #found > 2 * limit and found[2 * limit] or '' }
local records = get_many(jobs_key, refs)
local states = get_many(ARGV[2] == 'leased' and running_key or waiting_key, refs)
for i, ref in ipairs(refs) do
  local state, n = unpack_state(states[i]), #page
  state.control = nil
  page[n + 1], page[n + 2], page[n + 3], page[n + 4] = ref, records[i] or '', found[2 * i], cjson.encode(state)
end
return page
