-- Pause a queued job, or let a paused one go on.
--
-- uses     time job bell queues place
-- KEYS[1]  root
-- ARGV     1 testing · 2 ref · 3 'pause' or 'resume'
-- returns  1, or 0 where the job is not queued, or not paused
--
-- Twice    the second call answers 1 to pause, 0 to resume, and changes nothing.

local ref, pauses = ARGV[2], ARGV[3] == 'pause'
local record = redis.call('HGET', jobs_key, ref)
local queue = record and queue_of(record)
local place = record and place_of(ref, queue)
if not place or place == 'leased' then
  return 0
elseif pauses == (place == 'paused') then
  return pauses and 1 or 0
end
local state = leave_place(ref, queue)
local due = state.due
state.due = nil
redis.call('HSET', waiting_key, ref, cmsgpack.pack(state))
if pauses then
  redis.call('ZADD', root .. 'paused:' .. queue, due, ref)
else
  line_up(ref, queue, state.priority or 5, due, 0)
end
return 1
