-- Cancel a job: a queued one is handed to the caller to be settled, a running one is told with its next renewal.
--
-- uses     time many audit job bell queues tombstones lease place
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 ref · 3 token · 4 lease (seconds)
-- returns  'asked', 'ended' or 'unknown', or {now, then what lease.lua's add_claim tells}
--
-- Twice    the token is answered with the job that it holds.

local ref, token = ARGV[2], ARGV[3]
local record = redis.call('HGET', jobs_key, ref)
local packed = redis.call('HGET', running_key, ref)
if packed then
  local state = unpack_state(packed)
  if state.token == token then
    local reply = { now }
    add_claim(reply, ref, record, state)
    return reply
  end
  state.cancel = true
  redis.call('HSET', running_key, ref, cmsgpack.pack(state))
  return 'asked'
end

local queue = record and queue_of(record)
local state = record and leave_place(ref, queue)
if state then
  local lease_until, reply, text = now + micros(ARGV[4]), { now }, control_text(record)
  state.ending, state.control = ENDINGS.CANCELLED, text ~= '' and text or nil
  lease(ref, queue, state, token, lease_until)
  close_leases(token, lease_until)
  add_claim(reply, ref, record, state)
  return reply
end
local known = epitaphs({ ref })[1] or redis.call('EXISTS', root .. 'result:' .. ref) == 1
  or redis.call('HEXISTS', root .. 'failed', ref) == 1 or redis.call('HEXISTS', root .. 'history', ref) == 1
return known and 'ended' or 'unknown'
