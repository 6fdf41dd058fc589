-- The commonest claim of all: of one queue without a rate, no timer is due, and what comes next are plain jobs that
-- have not run yet. It is answered before the parts that it does not need are even defined: a job waits for it.
-- Nothing is changed before it is known that this is one; any other claim goes on below.
local token, lease_until = ARGV[2], now + micros(ARGV[4])

-- The first jobs of the queue with their scores, and their records, if all of them are plain and fresh.
local function plain_jobs(queue, wanted)
  local timers = redis.call('ZMSCORE', root .. 'timers', 'd:' .. queue, 'l:' .. queue)
  if (tonumber(timers[1]) or now + 1) <= now or (tonumber(timers[2]) or now + 1) <= now
    or redis.call('SISMEMBER', root .. 'paused', queue) == 1 then
    return nil
  end
  local first = redis.call('ZRANGE', root .. 'ready:' .. queue, 0, wanted - 1, 'WITHSCORES')
  local refs = {}
  for i = 1, #first, 2 do
    refs[#refs + 1] = first[i]
  end
  local records, states = get_many(jobs_key, refs), get_many(waiting_key, refs)
  for i = 1, #refs do
    if states[i] or not records[i] or string.byte(records[i]) ~= 10 then -- 10: the control before it is empty
      return nil
    end
  end
  return first, records
end

local function plain_claim(queue, wanted)
  local first, records = plain_jobs(queue, wanted)
  if not records or #records == 0 then
    return nil
  end
  redis.call('ZREMRANGEBYRANK', root .. 'ready:' .. queue, 0, #records - 1)
  local reply = { now, 0, '0', 0, 0 }
  for i, record in ipairs(records) do
    local ref, state = first[2 * i - 1], { attempt = 0, due = due_of(tonumber(first[2 * i])) }
    lease(ref, queue, state, token, lease_until)
    add_claim(reply, ref, record, state)
  end
  close_leases(token, lease_until)
  if #records == wanted and redis.call('EXISTS', root .. 'ready:' .. queue) == 1 then
    ring(queue)
  end
  return reply
end

if #ARGV == 10 and ARGV[6] ~= '1' and ARGV[10] == '' then
  local wanted = math.min(tonumber(ARGV[3]), tonumber(ARGV[9]))
  if wanted > 0 and (ARGV[5] ~= '1' or redis.call('EXISTS', root .. 'claim:' .. token) == 0) then
    local reply = plain_claim(ARGV[8], wanted)
    if reply then
      return reply
    end
  end
end
