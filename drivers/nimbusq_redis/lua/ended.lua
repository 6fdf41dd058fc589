-- How a job ended; while it lives, remember the inbox that waits to hear of it.
--
-- uses     time many job records ended
-- KEYS[1]  root
-- ARGV     1 testing · 2 ref · 3 inbox, or ''
-- returns  {state ('result', 'done', 'failed', 'cancelled', 'unknown'), result or error}, or nothing while it lives

local ended = ended_as(ARGV[2])
if not ended and ARGV[3] ~= '' then
  local inboxes = redis.call('HGET', root .. 'awaited', ARGV[2])
  if not inboxes then
    redis.call('HSET', root .. 'awaited', ARGV[2], ARGV[3])
  elseif not string.find(inboxes, ARGV[3], 1, true) then
    redis.call('HSET', root .. 'awaited', ARGV[2], inboxes .. ' ' .. ARGV[3])
  end
  redis.call('EXPIRE', root .. 'awaited', 3600)
end
return ended or false
