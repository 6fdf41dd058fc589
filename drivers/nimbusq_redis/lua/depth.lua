-- How many jobs a queue has. A delayed job that is due counts as pending: the next claim takes it.
--
-- uses     time many job bell queues
-- KEYS[1]  root
-- ARGV     1 testing · then queues
-- returns  for each queue: pending, delayed, running, microseconds that the first due job waits (-1: there is none)

local HIGHEST, LOWEST = 1, 10

local function oldest_due(queue)
  local due = nil
  for priority = HIGHEST, LOWEST do
    local head = redis.call('ZRANGE', root .. 'ready:' .. queue, ready_score(priority, BAND_EPOCH),
      '(' .. string.format('%.0f', ready_score(priority + 1, BAND_EPOCH)), 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    if head[2] then
      due = math.min(due or now, due_of(tonumber(head[2])))
    end
  end
  local head = redis.call('ZRANGE', root .. 'delayed:' .. queue, 0, 0, 'WITHSCORES')
  if head[2] and tonumber(head[2]) <= now then
    due = math.min(due or now, tonumber(head[2]))
  end
  return due
end

local reply = {}
for i = 2, #ARGV do
  local queue = ARGV[i]
  local ready = redis.call('ZCARD', root .. 'ready:' .. queue)
  local waiting = redis.call('ZCARD', root .. 'delayed:' .. queue)
  local due = waiting > 0 and redis.call('ZCOUNT', root .. 'delayed:' .. queue, '-inf', now) or 0
  local oldest = (ready > 0 or due > 0) and oldest_due(queue)
  local n = #reply
  reply[n + 1], reply[n + 2] = ready + due, waiting - due
  reply[n + 3] = redis.call('ZCARD', root .. 'leased:' .. queue)
  reply[n + 4] = oldest and math.max(0, now - oldest) or -1
end
return reply
