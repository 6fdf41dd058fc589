-- A queue's bell wakes one worker. It is a list of at most one element; a worker with nothing to do blocks on the
-- bells of all its queues (BLPOP), and Redis hands an element to the one that has waited longest.
--
-- Nothing is lost: a ring that nobody waits for stays until somebody does. Nothing thunders: one ring wakes one
-- worker, and a claim that leaves jobs behind rings for the next (see claim.lua). A bell that nobody answers goes
-- after 10 s: whoever comes later looks into the queue before it waits.
local BELL_TTL = 10000

local function ring(queue)
  local bell = root .. 'bell:' .. queue
  if redis.call('EXISTS', bell) == 0 then
    redis.call('RPUSH', bell, '1')
    redis.call('PEXPIRE', bell, BELL_TTL)
  end
end
