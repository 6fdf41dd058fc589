-- The commonest push of all, one plain job that is due at once, in as few steps as it takes: its sender waits for it.
-- It is answered before the parts that it does not need are even defined.
if #ARGV == 5 and ARGV[4] == '' then
  local ref, queue, record = ARGV[2], ARGV[3], '\n' .. ARGV[5]
  local gone = redis.call('HEXISTS', grave_key(0), ref) == 1 or redis.call('HEXISTS', grave_key(1), ref) == 1
  if not gone and redis.call('HSETNX', jobs_key, ref, record) == 1 then
    redis.call('ZADD', root .. 'ready:' .. queue, ready_text(5, now), ref)
    ring(queue)
    if testing then
      audit_push(ref, record, {}, now)
    end
  end
  return { '' }
end
