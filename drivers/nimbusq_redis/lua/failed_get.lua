-- One failed record.
--
-- uses     time
-- KEYS[1]  root
-- ARGV     1 testing · 2 ref
-- returns  {time, record}, or nothing

local record = redis.call('HGET', root .. 'failed', ARGV[2])
return record and { redis.call('ZSCORE', root .. 'failed:at', ARGV[2]), record } or false
