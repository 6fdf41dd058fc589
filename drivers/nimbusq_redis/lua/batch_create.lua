-- Create an open batch. The same id again changes nothing.
--
-- uses     time many audit job pushed bell queues tombstones unique enqueue batch
-- KEYS[1]  root
-- ARGV     1 testing · 2 id · 3 name · 4 cancel_on_failure ('1' or '') · 5 meta (JSON) · 6 catch (wire, or '') ·
--          7 number of entries of `then` (0 or 1) · 8 of `finally` · then those: ref, queue, control, wire
-- returns  nothing

local key = batch_key(ARGV[2])
if redis.call('EXISTS', key) == 1 then
  return
end
local at = string.format('%.0f', now)
redis.call('HSET', key, 'name', ARGV[3], 'mark', 0, 'failed', 0, 'sealed', '', 'cancelled', '',
  'cancel_on_failure', ARGV[4], 'created', at, 'updated', at, 'finished', '', 'meta', ARGV[5])
if ARGV[6] ~= '' then
  redis.call('HSET', key, 'catch', ARGV[6])
end
local next_entry = 9
for i, field in ipairs({ 'then', 'finally' }) do
  if ARGV[6 + i] == '1' then
    local entry = { ARGV[next_entry], ARGV[next_entry + 1], ARGV[next_entry + 2], ARGV[next_entry + 3] }
    redis.call('HSET', key, field, cmsgpack.pack(entry))
    next_entry = next_entry + 4
  end
end
redis.call('EXPIRE', key, BATCH_TTL)
redis.call('ZADD', root .. 'batches', now, ARGV[2])
redis.call('EXPIRE', root .. 'batches', BATCH_TTL + 86400)
