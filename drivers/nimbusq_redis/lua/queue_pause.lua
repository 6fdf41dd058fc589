-- Pause a queue, or let it go on.
--
-- uses     time bell
-- KEYS[1]  root
-- ARGV     1 testing · 2 queue · 3 'pause' or 'resume'
-- returns  1 where that changed something

if ARGV[3] == 'pause' then
  return redis.call('SADD', root .. 'paused', ARGV[2])
end
ring(ARGV[2])
return redis.call('SREM', root .. 'paused', ARGV[2])
