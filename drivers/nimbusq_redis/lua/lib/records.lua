-- What is kept of jobs that have ended.
--   failed               hash: ref -> record (JSON, newline, wire), until forgotten
--   failed:at            sorted set: ref by time; failed:queue:<queue> and failed:print:<fingerprint> likewise
--   failed:prints        sorted set: fingerprint by its last failure
--   history, history:at  hash: ref -> row (JSON), and sorted set: ref by time; capped
--   result:<ref>         the encoded return value, with its TTL

local function index_keys(queue, print)
  return root .. 'failed:at', root .. 'failed:queue:' .. queue, root .. 'failed:print:' .. print
end

local function failed_head(record)
  return cjson.decode(string.sub(record, 1, string.find(record, '\n', 1, true) - 1))
end

local function forget_failed(ref)
  local record = redis.call('HGET', root .. 'failed', ref)
  if not record then
    return false
  end
  local head = failed_head(record)
  local all, by_queue, by_print = index_keys(head.queue, head.fingerprint)
  redis.call('HDEL', root .. 'failed', ref)
  redis.call('ZREM', all, ref)
  redis.call('ZREM', by_queue, ref)
  redis.call('ZREM', by_print, ref)
  local last = redis.call('ZRANGE', by_print, -1, -1, 'WITHSCORES')
  if last[2] then
    redis.call('ZADD', root .. 'failed:prints', last[2], head.fingerprint)
  else
    redis.call('ZREM', root .. 'failed:prints', head.fingerprint)
  end
  return record
end

-- Insert the record, or replace the one of that job, as the newest. `order` keeps those of one call apart.
local function keep_failed(ref, record, order)
  forget_failed(ref)
  local head = failed_head(record)
  redis.call('HSET', root .. 'failed', ref, record)
  for _, key in ipairs({ index_keys(head.queue, head.fingerprint) }) do
    redis.call('ZADD', key, now + order, ref)
  end
  redis.call('ZADD', root .. 'failed:prints', now + order, head.fingerprint)
end

local function drop_history(refs)
  call_many('ZREM', root .. 'history:at', refs)
  call_many('HDEL', root .. 'history', refs)
end

-- rows: ref, row, ref, row ...; the oldest beyond the limits are dropped in passing.
local function keep_history(rows, limit, ttl)
  if #rows == 0 then
    return
  end
  local index, places = root .. 'history:at', {}
  for i = 1, #rows, 2 do
    places[i], places[i + 1] = now + (i - 1) / 2, rows[i]
  end
  call_many('HSET', root .. 'history', rows)
  call_many('ZADD', index, places)
  drop_history(redis.call('ZRANGE', index, '-inf', now - ttl, 'BYSCORE', 'LIMIT', 0, 1000))
  local excess = redis.call('ZCARD', index) - limit
  if excess > 0 then
    drop_history(redis.call('ZRANGE', index, 0, excess - 1))
  end
  if ttl > 0 then
    redis.call('PEXPIRE', index, math.ceil(ttl / 1000))
    redis.call('PEXPIRE', root .. 'history', math.ceil(ttl / 1000))
  end
end

local function keep_result(ref, result, ttl)
  redis.call('SET', root .. 'result:' .. ref, result, 'PX', math.max(1, math.ceil(ttl * 1000)))
end
