-- Overlap keys: a sorted set of the jobs that hold one, by the time until which they count. That is the end of the
-- lease, or expire_after from the last renewal where that is sooner, so that a dead worker blocks for a lease at most.

local function overlap_key(digest)
  return root .. 'overlap:' .. digest
end

local function is_full(control)
  local key = overlap_key(control.overlap)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  return redis.call('ZCARD', key) >= control.limit
end

-- Take or renew the key, until the lease ends at `lease_until`.
local function hold(ref, control, lease_until)
  local key = overlap_key(control.overlap)
  local till = math.min(lease_until, now + micros(control.expire_after))
  redis.call('ZADD', key, till, ref)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  redis.call('PEXPIRE', key, math.max(1, math.ceil((tonumber(last[2]) - now) / 1000)) + 1000)
end

local function let_go(ref, control)
  redis.call('ZREM', overlap_key(control.overlap), ref)
end
