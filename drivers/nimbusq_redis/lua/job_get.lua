-- Jobs as they stand.
--
-- uses     time job bell queues place
-- KEYS[1]  root
-- ARGV     1 testing · then refs
-- returns  for each one: of a live job {'live', record, queue, place, score, state (JSON), now}; of a failed one
--          {'failed', record}; of one that ended otherwise {'history', row}; else {}

local function view(ref)
  local record = redis.call('HGET', jobs_key, ref)
  if record then
    local queue = queue_of(record)
    local place, score = place_of(ref, queue)
    local state = unpack_state(redis.call('HGET', place == 'leased' and running_key or waiting_key, ref))
    state.control = nil
    return { 'live', record, queue, place or 'leased', string.format('%.0f', score or now), cjson.encode(state), now }
  end
  local failed = redis.call('HGET', root .. 'failed', ref)
  if failed then
    return { 'failed', failed }
  end
  local row = redis.call('HGET', root .. 'history', ref)
  return row and { 'history', row } or {}
end

local views = {}
for i = 2, #ARGV do
  views[i - 1] = view(ARGV[i])
end
return views
