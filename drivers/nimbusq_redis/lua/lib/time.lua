-- The first part of every script.
-- root     the namespace's key prefix with its hash tag, e.g. "{nimbusq}:" (always KEYS[1])
-- testing  a test owns this store: its clock has a skew and its transitions are audited (always ARGV[1])
-- now      the server's clock. Every time in a script is a whole number of microseconds since the epoch:
--          sums of float seconds are not exact, and a job must be due when its delay is over.
local root, testing = KEYS[1], ARGV[1] == '1'
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1e6 + tonumber(clock[2])
if testing then
  now = now + tonumber(redis.call('GET', root .. 'skew') or 0)
end

local function micros(seconds)
  return math.floor(tonumber(seconds) * 1e6 + 0.5)
end
