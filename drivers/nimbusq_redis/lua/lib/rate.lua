-- The generic cell rate algorithm (ITU-T I.371): one number per key, the theoretical arrival time of the next job.
-- With T = 1 / per_second, n jobs may start when tat + (n - burst) * T <= now.
local SLACK = 1 -- microsecond: intervals are not whole numbers

local function tat_of(rate)
  return math.max(tonumber(redis.call('GET', root .. 'rate:' .. rate.rate) or 0), now)
end

-- How many of n may start now, and in how many microseconds the next one may (0 if all may). Spends nothing.
local function room(rate, n)
  local interval = 1e6 / rate.per_second
  local tat = tat_of(rate)
  local free = math.floor((now - tat + SLACK) / interval + rate.burst)
  if free >= n then
    return n, 0
  end
  free = math.max(free, 0)
  return free, math.max(1, math.ceil(tat + (free + 1 - rate.burst) * interval - now))
end

-- Count n starts; a negative n gives them back.
local function spend(rate, n)
  local tat = tat_of(rate) + n * 1e6 / rate.per_second
  if tat > now then
    redis.call('SET', root .. 'rate:' .. rate.rate, string.format('%.3f', tat), 'PX', math.ceil((tat - now) / 1000) + 1000)
  else
    redis.call('DEL', root .. 'rate:' .. rate.rate)
  end
end
