-- Unique keys. A slot lives exactly as long as its job; a lock stands among the Locker's locks, for its ttl at most.

local function lock_key(digest)
  return root .. 'lock:unique:' .. digest
end

-- Take the job's unique key; the holder's ref (of a slot) or id (of a lock) where somebody else has it.
local function take_unique(ref, control)
  if control.slot then
    local holder = redis.call('HGET', root .. 'slots', control.slot)
    if holder and holder ~= ref then
      return holder
    end
    redis.call('HSET', root .. 'slots', control.slot, ref)
  elseif control.lock then
    local key = lock_key(control.lock)
    local holder = redis.call('GET', key)
    if holder and holder ~= control.id then
      return '=' .. holder
    end
    redis.call('SET', key, control.id, 'PX', math.max(1, math.ceil(control.ttl * 1000)))
  end
  return false
end

-- Give it back, if this job still has it.
local function free_unique(ref, control)
  if control.slot then
    if redis.call('HGET', root .. 'slots', control.slot) == ref then
      redis.call('HDEL', root .. 'slots', control.slot)
    end
  elseif control.lock and redis.call('GET', lock_key(control.lock)) == control.id then
    redis.call('DEL', lock_key(control.lock))
  end
end
