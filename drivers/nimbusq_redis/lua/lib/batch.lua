-- Batches. batch:<id> is a hash of
--   name, created, updated, finished (times), mark, failed, sealed, cancelled, cancel_on_failure, meta, catch,
--   then, finally (packed push entries)
-- beside it batch:<id>:members and :pending are sets of member refs, :errors a list of the first 50. All of them go
-- 7 days after the last update. `batches` orders the ids by creation.
local BATCH_TTL, MAX_ERRORS = 604800, 50
local FIELDS = { 'name', 'mark', 'failed', 'sealed', 'cancelled', 'cancel_on_failure', 'created', 'updated', 'finished' }
local opened = {} -- the batches that this call has loaded, by id

local function batch_key(id)
  return root .. 'batch:' .. id
end

-- The batch with its number of pending members, or nil where it is unknown (any more).
local function open_batch(id)
  if opened[id] then
    return opened[id]
  end
  local key = batch_key(id)
  local values = redis.call('HMGET', key, unpack(FIELDS))
  if not values[7] then
    return nil
  end
  local batch = { id = id, key = key, changed = false }
  for i, field in ipairs(FIELDS) do
    batch[field] = values[i] or ''
  end
  batch.failed, batch.mark = tonumber(batch.failed), tonumber(batch.mark)
  batch.pending = redis.call('SCARD', key .. ':pending')
  opened[id] = batch
  return batch
end

-- Count a member; false where it was not pending: recording one twice changes nothing.
local function count_member(batch, member, failed, error)
  if redis.call('SREM', batch.key .. ':pending', member) == 0 then
    return false
  end
  batch.pending = batch.pending - 1
  if failed then
    batch.failed = batch.failed + 1
    if batch.cancel_on_failure == '1' then
      batch.cancelled = '1'
    end
    if error ~= '' and redis.call('LLEN', batch.key .. ':errors') < MAX_ERRORS then
      redis.call('RPUSH', batch.key .. ':errors', error)
    end
  end
  batch.changed = true
  return true
end

-- End the batch if it is sealed and its last member has ended: once, with its callbacks.
local function finish_if_due(batch)
  if batch.sealed ~= '1' or batch.pending > 0 or batch.finished ~= '' then
    return false
  end
  batch.finished, batch.changed = string.format('%.0f', now), true
  local callbacks = redis.call('HMGET', batch.key, 'then', 'finally')
  if callbacks[1] and batch.failed == 0 then
    enqueue(cmsgpack.unpack(callbacks[1]))
  end
  if callbacks[2] then
    enqueue(cmsgpack.unpack(callbacks[2]))
  end
  return true
end

-- Write what has changed, and keep the batch for another 7 days.
local function close_batches()
  for _, batch in pairs(opened) do
    if batch.changed then
      redis.call('HSET', batch.key, 'failed', batch.failed, 'mark', batch.mark, 'sealed', batch.sealed,
        'cancelled', batch.cancelled, 'finished', batch.finished, 'updated', string.format('%.0f', now))
      for _, part in ipairs({ '', ':members', ':pending', ':errors' }) do
        redis.call('EXPIRE', batch.key .. part, BATCH_TTL)
      end
    end
  end
end

-- What an answer tells of the batch; read by batches.py.
local function batch_state(batch)
  return {
    batch.id, batch.name, redis.call('SCARD', batch.key .. ':members'), batch.pending, batch.failed,
    batch.sealed, batch.cancelled, batch.cancel_on_failure, batch.created,
    batch.changed and string.format('%.0f', now) or batch.updated, batch.finished,
    redis.call('HGET', batch.key, 'catch') or '',
    batch.failed > 0 and redis.call('LRANGE', batch.key .. ':errors', 0, -1) or {},
  }
end
