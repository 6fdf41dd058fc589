-- Apply outcomes, each with all that follows from it, where the claim still holds the job.
--
-- uses     time many audit job pushed bell queues tombstones unique overlap enqueue batch records ended
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 history limit · 3 history ttl (seconds) · then for each settlement:
--          ref, queue, token, outcome, delay (seconds), number of effect arguments, effects
--          outcome  done, failed, cancelled; retry, release (counted), handback (uncounted)
--          effects  record batch member failed('1' or '') error · push ref queue control wire · failed record ·
--                   history row · result ttl bytes · error text
-- returns  for each settlement 1 (settled), 2 (settled so before) or 0 (the token is not the job's any more); then for
--          each one that has a record of a known batch: index, counted ('1' or '0'), finished ('1' or '0'), batch state
--
-- Twice    the token has left the job with the first call, so that the second one finds it among the tombstones.

local TERMINAL = { done = true, failed = true, cancelled = true }
local COUNTS = { release = { attempt = -1, releases = 1 }, handback = { attempt = -1, releases = 0 },
  retry = { attempt = 0, releases = 0 } }

local ended, graves, left, rows, tokens = {}, {}, {}, {}, {}
local answers, updates = {}, {}

local settlements, refs = {}, {}
local i = 4
while i <= #ARGV do
  local n = #settlements + 1
  settlements[n] = { n = n, ref = ARGV[i], queue = ARGV[i + 1], token = ARGV[i + 2], outcome = ARGV[i + 3],
    delay = ARGV[i + 4], first = i + 6, last = i + 5 + tonumber(ARGV[i + 5]) }
  refs[n] = ARGV[i]
  i = settlements[n].last + 1
end

-- The job leaves the store.
local function finish(settlement, control)
  ended[#ended + 1] = settlement.ref
  graves[#graves + 1], graves[#graves + 2] = settlement.ref, settlement.token
  if control then
    free_unique(settlement.ref, control)
  end
end

-- The job stays, and is due again after the delay.
local function return_job(settlement, state)
  local counts = COUNTS[settlement.outcome]
  if not state.ending then -- the claim of a job that must end has counted no attempt
    state.attempt = state.attempt + counts.attempt
    state.releases = (state.releases or 0) + counts.releases
  end
  state.token, state.control, state.settled = nil, nil, settlement.token
  local due = now + micros(settlement.delay)
  redis.call('HDEL', running_key, settlement.ref)
  redis.call('HSET', waiting_key, settlement.ref, cmsgpack.pack(state))
  line_up(settlement.ref, settlement.queue, state.priority or 5, due, settlement.n - 1)
  if testing then
    audit(settlement.outcome == 'retry' and 'retry' or 'release', settlement.ref, settlement.token, state.attempt,
      { run_at = due / 1e6 })
  end
end

-- Effects: each takes the position of its first argument, and answers how many it has read.
local effects = {}

function effects.record(at, settlement)
  local batch = open_batch(ARGV[at])
  if batch then
    settlement.batch, settlement.member = batch, ARGV[at + 1]
    settlement.counted = count_member(batch, ARGV[at + 1], ARGV[at + 2] == '1', ARGV[at + 3])
  end
  return 4
end

function effects.push(at)
  enqueue({ ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3] })
  return 4
end

function effects.failed(at, settlement)
  keep_failed(settlement.ref, ARGV[at], settlement.n - 1)
  return 1
end

function effects.history(at, settlement)
  rows[#rows + 1], rows[#rows + 2] = settlement.ref, ARGV[at]
  return 1
end

function effects.result(at, settlement)
  keep_result(settlement.ref, ARGV[at + 1], tonumber(ARGV[at]))
  return 2
end

function effects.error(at, settlement, state)
  state.error = ARGV[at]
  return 1
end

-- `record` stands first among the effects, so that what the end of the job tells the audit is known.
local function follow(settlement, state, from, to)
  local at = from
  while at <= to do
    at = at + 1 + effects[ARGV[at]](at + 1, settlement, state)
  end
end

local function audit_end(settlement, state)
  local batch = settlement.batch
  audit(settlement.outcome, settlement.ref, settlement.token, state.attempt, batch and {
    batch = batch.id, member_ref = settlement.member, counted = settlement.counted } or {})
end

local function apply(settlement, state)
  local control = parse_control(state.control)
  gather(left, settlement.queue, settlement.ref)
  gather(tokens, settlement.token, settlement.ref)
  if control and control.overlap then
    let_go(settlement.ref, control)
  end
  local first = settlement.first
  if ARGV[first] == 'record' and first <= settlement.last then
    follow(settlement, state, first, first)
    first = first + 5
  end
  if TERMINAL[settlement.outcome] then
    finish(settlement, control)
    if testing then
      audit_end(settlement, state)
    end
    follow(settlement, state, first, settlement.last)
  else
    follow(settlement, state, first, settlement.last)
    return_job(settlement, state)
  end
  if settlement.batch then
    local done = finish_if_due(settlement.batch)
    updates[#updates + 1] = { settlement.n, settlement.counted and '1' or '0', done and '1' or '0',
      batch_state(settlement.batch) }
  end
  return 1
end

-- The token is not the job's: was it this very settlement that took it away?
local function missed(settlement, gone)
  if gone ~= settlement.token then
    local waiting = redis.call('HGET', waiting_key, settlement.ref)
    if not waiting or unpack_state(waiting).settled ~= settlement.token then
      return 0
    end
  end
  local batch = ARGV[settlement.first] == 'record' and settlement.first <= settlement.last
    and open_batch(ARGV[settlement.first + 1])
  if batch then
    updates[#updates + 1] = { settlement.n, '0', '0', batch_state(batch) }
  end
  return 2
end

local states = get_many(running_key, refs)
local gone, applied = nil, {}
for n, settlement in ipairs(settlements) do
  local state = unpack_state(states[n])
  if applied[settlement.ref] then
    answers[n] = applied[settlement.ref] == settlement.token and 2 or 0
  elseif state.token == settlement.token then
    applied[settlement.ref] = settlement.token
    answers[n] = apply(settlement, state)
  else
    gone = gone or epitaphs(refs)
    answers[n] = missed(settlement, gone[n])
  end
end

call_many('HDEL', running_key, ended)
call_many('HDEL', jobs_key, ended)
for queue, members in pairs(left) do
  call_many('ZREM', root .. 'leased:' .. queue, members)
  if redis.call('EXISTS', root .. 'leased:' .. queue) == 0 then
    redis.call('ZREM', root .. 'timers', 'l:' .. queue)
  end
end
for token, members in pairs(tokens) do
  call_many('ZREM', root .. 'claim:' .. token, members)
end
bury(graves)
keep_history(rows, tonumber(ARGV[2]), micros(ARGV[3]))
notify(ended)
close_batches()

for n = 1, #updates do
  answers[#answers + 1] = updates[n]
end
return answers
