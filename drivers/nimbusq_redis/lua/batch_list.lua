-- A page of batches, newest first.
--
-- uses     time many audit job pushed bell queues tombstones unique enqueue batch
-- KEYS[1]  root
-- ARGV     1 testing · 2 cursor (creation time of the last one shown), or '' · 3 limit
-- returns  the next cursor ('' at the end), then batch states

local index = root .. 'batches'
local limit = tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', index, '-inf', now - 30 * BATCH_TTL * 1e6) -- no batch lives on that long unchanged
local before = ARGV[2] == '' and '+inf' or '(' .. ARGV[2]
local page, last = { '' }, nil
while #page <= limit do
  local found = redis.call('ZRANGE', index, before, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, limit + 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if #page > limit then
      page[1] = last
      return page
    end
    local batch = open_batch(found[i])
    if batch then
      page[#page + 1], last = batch_state(batch), found[i + 1]
    else
      redis.call('ZREM', index, found[i])
    end
  end
  if #found <= 2 * limit then
    return page
  end
  before = '(' .. found[#found]
end
return page
