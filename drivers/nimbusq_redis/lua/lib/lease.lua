-- Jobs come under a lease here: a claim's, or a canceller's. What is gathered is written at once by `close_leases`.
local leases = { running = {}, refs = {}, queues = {} }

-- Give the job, which stands in no set any more, to `token` until `lease_until`. Nothing else writes a token.
local function lease(ref, queue, state, token, lease_until)
  state.token, state.queue, state.settled = token, queue, nil
  state.due = state.due or now
  state.fence = (state.fence or 0) + 1
  if state.ending == nil then
    state.attempt = state.attempt + 1
  end
  leases.refs[#leases.refs + 1] = ref
  gather(leases.running, 1, ref, cmsgpack.pack(state))
  gather(leases.queues, queue, lease_until, ref)
  if testing then
    audit(state.ending and 'ending' or 'claim', ref, token, state.attempt,
      { fence = state.fence, lease_until = lease_until / 1e6 })
  end
end

-- claim:<token>, the jobs of a call in their order, lets the same call be answered again: its reply may have been
-- lost. A settlement takes its job out of it, so that it goes with the last one.
local function close_leases(token, lease_until)
  if #leases.refs == 0 then
    return
  end
  call_many('HSET', running_key, leases.running[1])
  call_many('HDEL', waiting_key, leases.refs)
  for queue, members in pairs(leases.queues) do
    call_many('ZADD', root .. 'leased:' .. queue, members)
    arm('l:', queue, lease_until)
  end
  local order = {}
  for n, ref in ipairs(leases.refs) do
    gather(order, 1, n, ref)
  end
  call_many('ZADD', root .. 'claim:' .. token, order[1])
  redis.call('PEXPIRE', root .. 'claim:' .. token, math.ceil((lease_until - now) / 1000) + 60000)
end

-- What a claim answers for each job; read by claims.py.
local ENDINGS = { LOST = 'lost', EXPIRED = 'expired', CANCELLED = 'cancelled', BLOCKED = 'blocked' }

local function add_claim(reply, ref, record, state)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = state.queue, ref, record or ''
  reply[n + 4], reply[n + 5], reply[n + 6] = state.attempt, state.releases or 0, state.fence
  reply[n + 7], reply[n + 8], reply[n + 9] = state.due, state.reclaims or 0, state.ending or ''
end
