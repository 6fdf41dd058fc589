-- Where a job stands: which of its queue's sets it is in.
local PLACES = { 'leased', 'ready', 'delayed', 'paused' }

-- The queue of a stored job: its envelope's, unless push has noted another one beside bytes that are no envelope.
local function queue_of(record)
  local control = parse_control(control_text(record))
  if control and control.queue then
    return control.queue
  end
  return read_header(record).queue or ''
end

-- The place's name and the job's score there; nil where it stands nowhere.
local function place_of(ref, queue)
  for _, place in ipairs(PLACES) do
    local score = redis.call('ZSCORE', root .. place .. ':' .. queue, ref)
    if score then
      return place, tonumber(score)
    end
  end
end

-- Take a queued job out of its place; its state (with the priority and time that its score told), or nil.
local function leave_place(ref, queue)
  local place, score = place_of(ref, queue)
  if not place or place == 'leased' then
    return nil
  end
  redis.call('ZREM', root .. place .. ':' .. queue, ref)
  local state = unpack_state(redis.call('HGET', waiting_key, ref))
  if place == 'ready' then
    local priority = priority_of(score)
    state.due, state.priority = due_of(score), priority ~= 5 and priority or nil
  else
    state.due = score
  end
  return state
end
