-- Wake one worker for each queue that has ready jobs: for a worker that stops waiting, and may have taken a ring
-- with it. `alarm` names a worker whose own bell is rung, at a time that it has chosen.
--
-- uses     time bell
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 alarm, or '' · then queues
-- returns  nothing

if ARGV[2] ~= '' then
  ring(ARGV[2])
end
for i = 3, #ARGV do
  if redis.call('EXISTS', root .. 'ready:' .. ARGV[i]) == 1 then
    ring(ARGV[i])
  end
end
