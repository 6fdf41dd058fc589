-- Take due jobs under a lease, after lost leases have been taken back.
--
-- uses     time many audit job bell queues lease plain_claim overlap rate
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 token · 3 limit · 4 lease (seconds) · 5 '1' if this call may be a repeated one
--          6 '1' if this worker watches a timer · 7 '1' if a bell may have woken it, of any lane
--          then for each lane: queue, limit, rate (JSON of {rate, per_second, burst}, or '')
-- returns  now, time of the next look (0: unknown), '1' if this worker watches it, microseconds until a rate opens
--          (0: none holds a job back), number of lost leases, for each of those: queue, ref, record, attempt; then for
--          each claim what lease.lua's add_claim tells
--
-- Twice    the same token is answered with the jobs that it still holds.

local MAX_ENDINGS, MAX_PROMOTED, MAX_LOOKS = 50, 100, 500
local slots = tonumber(ARGV[3])
local endings, looks, moved, retry_after = 0, 0, 0, 0
local lost, claims = {}, {}
local left_behind = {} -- queues that may still have ready jobs for others

local lanes = {}
for i = 8, #ARGV, 3 do
  lanes[#lanes + 1] = { queue = ARGV[i], limit = tonumber(ARGV[i + 1]), rate = parse_control(ARGV[i + 2]) }
end

local function answer_claim(ref, queue, record, state)
  lease(ref, queue, state, token, lease_until)
  add_claim(claims, ref, record, state)
end

local function hand_out(ref, queue, record, state, ending)
  state.ending = ending
  endings = endings + 1
  answer_claim(ref, queue, record, state)
end

-- Timers -------------------------------------------------------------------------------------------------------

local function promote(queue)
  local key = root .. 'delayed:' .. queue
  local due = redis.call('ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', 0, MAX_PROMOTED, 'WITHSCORES')
  local refs, members = {}, {}
  for i = 1, #due, 2 do
    refs[#refs + 1] = due[i]
  end
  local states = get_many(waiting_key, refs)
  for i, ref in ipairs(refs) do
    local priority = states[i] and unpack_state(states[i]).priority or 5
    gather(members, 1, ready_score(priority, tonumber(due[2 * i])), ref)
  end
  if #refs > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, #refs - 1)
    call_many('ZADD', root .. 'ready:' .. queue, members[1])
    left_behind[queue] = true
  end
  retime('d:', queue, key)
end

-- The lease of `ref` is over: back to ready, or to this caller with its ending.
local function take_back(queue, ref, packed, record)
  local state = unpack_state(packed)
  local text = control_text(record)
  local control = parse_control(text) or {}
  if testing then
    audit('lost', ref, state.token or '', state.attempt, {})
  end
  if control.overlap then
    let_go(ref, control)
  end
  if not state.ending then
    state.reclaims = (state.reclaims or 0) + 1
    lost[#lost + 1] = { queue, ref, record or '', state.attempt }
    if state.cancel then
      state.ending = ENDINGS.CANCELLED
    elseif state.attempt >= (control.max or 4) then
      state.ending = ENDINGS.LOST
    end
  end
  if state.ending then
    hand_out(ref, queue, record, state, state.ending)
    return
  end
  state.token, state.control = nil, nil
  redis.call('ZREM', root .. 'leased:' .. queue, ref)
  redis.call('HDEL', running_key, ref)
  redis.call('HSET', waiting_key, ref, cmsgpack.pack(state))
  moved = moved + 1
  redis.call('ZADD', root .. 'ready:' .. queue, ready_score(state.priority or 5, now) + moved, ref)
  left_behind[queue] = true
end

local function reclaim(queue)
  local key = root .. 'leased:' .. queue
  local room_left = MAX_ENDINGS - endings - #lost
  if room_left > 0 then
    local refs = redis.call('ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', 0, room_left)
    local states, records = get_many(running_key, refs), get_many(jobs_key, refs)
    for i, ref in ipairs(refs) do
      take_back(queue, ref, states[i], records[i])
    end
  end
  retime('l:', queue, key)
end

local timer_names = {}
for _, lane in ipairs(lanes) do
  timer_names[#timer_names + 1] = 'd:' .. lane.queue
  timer_names[#timer_names + 1] = 'l:' .. lane.queue
end

local function read_timers(key)
  return #timer_names > 0 and redis.call('ZMSCORE', root .. key, unpack(timer_names)) or {}
end

local function fire_timers(timers)
  local fired = false
  for n, lane in ipairs(lanes) do
    local delayed_at, leased_at = tonumber(timers[2 * n - 1]), tonumber(timers[2 * n])
    if leased_at and leased_at <= now then
      reclaim(lane.queue)
      fired = true
    end
    if delayed_at and delayed_at <= now then
      promote(lane.queue)
      fired = true
    end
  end
  return fired
end

-- Ready jobs ---------------------------------------------------------------------------------------------------

-- A rate holds jobs back for that long.
local function note_wait(wait)
  retry_after = retry_after > 0 and math.min(retry_after, wait) or wait
end

local cancelled_batches = {}

local function is_cancelled(batch)
  if cancelled_batches[batch] == nil then
    cancelled_batches[batch] = redis.call('HGET', root .. 'batch:' .. batch, 'cancelled') == '1'
  end
  return cancelled_batches[batch]
end

local function ending_of(state, control)
  if state.ending then
    return state.ending
  elseif state.cancel or (control.batch and is_cancelled(control.batch)) then
    return ENDINGS.CANCELLED
  elseif state.expires and state.expires <= now then
    return ENDINGS.EXPIRED
  end
end

local function put_back(ref, queue, state, delay)
  state.control = nil
  moved = moved + 1
  redis.call('HSET', waiting_key, ref, cmsgpack.pack(state))
  line_up(ref, queue, state.priority or 5, now + delay, moved)
  if testing then
    audit('release', ref, '', state.attempt, { run_at = (now + delay) / 1e6 })
  end
end

-- Put the job back, or end it, if its rate or its overlap key does not let it start.
local function is_held_back(ref, queue, record, state, control)
  if control.rate then
    local _, wait = room(control, 1)
    if wait > 0 then
      note_wait(wait)
      put_back(ref, queue, state, wait)
      return true
    end
  end
  if control.overlap and is_full(control) then
    if control.max_releases and (state.blocks or 0) >= control.max_releases then
      hand_out(ref, queue, record, state, ENDINGS.BLOCKED)
    else
      state.blocks, state.releases = (state.blocks or 0) + 1, (state.releases or 0) + 1
      put_back(ref, queue, state, micros(control.release_after))
    end
    return true
  end
  return false
end

-- Start the job; false where it takes no slot.
local function start(queue, ref, score, record, packed)
  local state = unpack_state(packed)
  local priority = priority_of(score)
  state.due, state.priority = due_of(score), priority ~= 5 and priority or nil
  local text = control_text(record)
  local control = parse_control(text)
  if control or state.ending or state.cancel then
    control = control or {}
    state.control = text ~= '' and text or nil
    local ending = ending_of(state, control)
    if ending then
      hand_out(ref, queue, record, state, ending)
      return false
    elseif is_held_back(ref, queue, record, state, control) then
      return false
    end
    if control.rate then
      spend(control, 1)
    end
    if control.overlap then
      hold(ref, control, lease_until)
    end
  end
  answer_claim(ref, queue, record, state)
  return true
end

-- Take up to `wanted` jobs of the queue; how many were started, and whether more may be left.
local function take(queue, wanted)
  local started = 0
  while started < wanted and looks < MAX_LOOKS and endings < MAX_ENDINGS do
    local popped = redis.call('ZPOPMIN', root .. 'ready:' .. queue, wanted - started)
    local refs = {}
    for i = 1, #popped, 2 do
      refs[#refs + 1] = popped[i]
    end
    looks = looks + #refs
    local records, states = get_many(jobs_key, refs), get_many(waiting_key, refs)
    for i, ref in ipairs(refs) do
      if start(queue, ref, tonumber(popped[2 * i]), records[i], states[i]) then
        started = started + 1
      end
    end
    if #refs < wanted - started or #refs == 0 then
      return started, false
    end
  end
  return started, true
end

local function serve(lane)
  local wanted = math.min(lane.limit, slots)
  local slowed = false
  if lane.rate then
    local allowed, wait = room(lane.rate, wanted)
    slowed = allowed < wanted
    if slowed and redis.call('ZCARD', root .. 'ready:' .. lane.queue) > allowed then
      note_wait(wait)
    end
    wanted = allowed
  end
  local started, more = 0, false
  if wanted > 0 then
    started, more = take(lane.queue, wanted)
  end
  slots = slots - started
  if lane.rate and started > 0 then
    spend(lane.rate, started)
  end
  left_behind[lane.queue] = more and not slowed or nil
end

local function serve_lanes()
  local keys = {}
  for i, lane in ipairs(lanes) do
    keys[i] = root .. 'ready:' .. lane.queue
  end
  if #keys == 0 or redis.call('EXISTS', unpack(keys)) == 0 then
    return
  end
  local paused = {}
  for _, queue in ipairs(redis.call('SMEMBERS', root .. 'paused')) do
    paused[queue] = true
    left_behind[queue] = nil
  end
  for _, lane in ipairs(lanes) do
    if slots <= 0 then
      break
    elseif lane.limit > 0 and not paused[lane.queue] then
      serve(lane)
    end
  end
end

-- Wake-ups -----------------------------------------------------------------------------------------------------

-- One ring wakes one worker; what this one leaves behind, and the timer that it watched, are for another one.
local function pass_on()
  if ARGV[7] == '1' and slots <= 0 then -- it may not have come to the queue that rang
    for _, lane in ipairs(lanes) do
      left_behind[lane.queue] = true
    end
  end
  if ARGV[6] == '1' and #claims > 0 then
    for _, name in ipairs(timer_names) do
      if redis.call('ZREM', root .. 'watched', name) == 1 then
        ring(string.sub(name, 3))
      end
    end
  end
  for queue in pairs(left_behind) do
    if redis.call('EXISTS', root .. 'ready:' .. queue) == 1 then
      ring(queue)
    end
  end
end

-- When this idle worker must look again: at a timer that nobody else watches, or shortly after one that is watched
-- (whoever watches it may have died). Returns the time and whether this worker watches it now.
local function next_look(timers)
  local first, first_name = nil, nil
  for n, at in ipairs(timers) do
    at = tonumber(at)
    if at and at < now + HORIZON and (not first or at < first) then
      first, first_name = at, timer_names[n]
    end
  end
  if not first then
    return 0, '0'
  end
  local watched = tonumber(redis.call('ZSCORE', root .. 'watched', first_name) or 0)
  if watched >= now and watched <= first then
    return first, '0'
  end
  redis.call('ZADD', root .. 'watched', first, first_name)
  redis.call('PEXPIRE', root .. 'watched', 60000)
  return first, '1'
end

-- The call -----------------------------------------------------------------------------------------------------

-- The jobs that an earlier call with this token has claimed, if it still holds any.
local function answer_again()
  local before = #claims
  local refs = ARGV[5] == '1' and redis.call('ZRANGE', root .. 'claim:' .. token, 0, -1) or {}
  local states, records = get_many(running_key, refs), get_many(jobs_key, refs)
  for i, ref in ipairs(refs) do
    local state = states[i] and unpack_state(states[i])
    if state and state.token == token then
      add_claim(claims, ref, records[i], state)
    end
  end
  return #claims > before
end

local timers = read_timers('timers')
local fired = fire_timers(timers)
if not answer_again() and slots > 0 then
  serve_lanes()
end
close_leases(token, lease_until)
pass_on()

local reply = { now, 0, '0', retry_after, #lost }
if #claims == 0 and #lost == 0 then
  reply[2], reply[3] = next_look(fired and read_timers('timers') or timers)
end
for _, entry in ipairs(lost) do
  for i = 1, 4 do
    reply[#reply + 1] = entry[i]
  end
end
for i = 1, #claims do
  reply[#reply + 1] = claims[i]
end
return reply
