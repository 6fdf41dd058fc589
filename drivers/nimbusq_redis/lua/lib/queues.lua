-- The sets of a queue, all sorted:
--   ready:<queue>    what can be claimed, by (priority, time it was due)
--   delayed:<queue>  what waits for a time, by that time       paused:<queue>  what waits for resume, likewise
--   leased:<queue>   what is claimed, by the end of its lease
-- and, for all queues together:
--   timers           "d:<queue>" and "l:<queue>": when delayed or leased needs the next look; early, never late
--   watched          the same members: when an idle worker will look

-- A ready score is a priority's band plus the microseconds since 2025: exact in a double until 2053.
local BAND, BAND_EPOCH = 9e14, 1735689600e6

local function ready_score(priority, due)
  return (priority - 1) * BAND + (due - BAND_EPOCH)
end

-- The score as text: of a number Redis would write seventeen digits, and read them again.
local function ready_text(priority, due)
  return string.format('%d', ready_score(priority, due))
end

local function priority_of(score)
  return math.floor(score / BAND) + 1
end

local function due_of(score)
  return score % BAND + BAND_EPOCH
end

-- An idle worker looks again after 10 s at the latest, so that only what is due sooner must be told.
local HORIZON = 11e6

-- Something is to be done for the queue at `at`: wake a worker that does not know yet, if it would come too late.
local function arm(kind, queue, at)
  local timer = kind .. queue
  redis.call('ZADD', root .. 'timers', 'LT', at, timer)
  if at < now + HORIZON then
    local watched = tonumber(redis.call('ZSCORE', root .. 'watched', timer) or 0)
    if watched < now or watched > at then
      ring(queue)
    end
  end
end

-- Set a timer to the head of its set, or drop it with the set.
local function retime(kind, queue, key)
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[2] then
    redis.call('ZADD', root .. 'timers', head[2], kind .. queue)
  else
    redis.call('ZREM', root .. 'timers', kind .. queue)
  end
end

-- A job waits for its time, or is ready where that has come. `order` (microseconds) keeps the jobs of one call in
-- their order.
local function line_up(ref, queue, priority, due, order)
  if due > now then
    redis.call('ZADD', root .. 'delayed:' .. queue, due + order, ref)
    arm('d:', queue, due + order)
  else
    redis.call('ZADD', root .. 'ready:' .. queue, ready_score(priority, due) + order, ref)
    ring(queue)
  end
end
