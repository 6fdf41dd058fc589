-- What is remembered of jobs that have just ended, so that a repeated settlement or push changes nothing: ref ->
-- the token that ended it, in a hash for each minute that is kept for another one. A minute outlasts the longest
-- deadline of a call.
local MINUTE = 60e6

local function grave_key(minutes_ago)
  return string.format('%sgone:%d', root, math.floor(now / MINUTE) - minutes_ago)
end

-- The tokens that ended the jobs, in order; false where nothing is known.
local function epitaphs(refs)
  local tokens, before = get_many(grave_key(0), refs), get_many(grave_key(1), refs)
  for i = 1, #refs do
    tokens[i] = tokens[i] or before[i]
  end
  return tokens
end

-- pairs: ref, token, ref, token ...
local function bury(pairs_)
  if #pairs_ == 0 then
    return
  end
  local key = grave_key(0)
  if redis.call('EXISTS', key) == 0 then
    redis.call('UNLINK', grave_key(2)) -- in the background; its TTL would free a great hash at once
    call_many('HSET', key, pairs_)
    redis.call('PEXPIRE', key, 3 * MINUTE / 1000)
  else
    call_many('HSET', key, pairs_)
  end
end

local function unbury(ref)
  redis.call('HDEL', grave_key(0), ref)
  redis.call('HDEL', grave_key(1), ref)
end
