-- Renew or drop a lock, if its token is the caller's.
--
-- uses     time
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 key · 3 token · 4 new ttl (milliseconds), or '' to drop it
-- returns  1, or 0 where somebody else holds it or nobody does

local key = root .. 'lock:' .. ARGV[2]
if redis.call('GET', key) ~= ARGV[3] then
  return 0
end
if ARGV[4] == '' then
  return redis.call('DEL', key)
end
return redis.call('PEXPIRE', key, ARGV[4])
