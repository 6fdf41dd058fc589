-- Reserve starts of a rate.
--
-- uses     time rate
-- KEYS[1]  root
-- ARGV     1 testing · 2 hashed key · 3 per second · 4 burst · 5 how many; below zero gives back
-- returns  granted, microseconds until the next could be (0 where all were granted)

local rate = { rate = ARGV[2], per_second = tonumber(ARGV[3]), burst = tonumber(ARGV[4]) }
local wanted = tonumber(ARGV[5])
if wanted < 0 then
  spend(rate, wanted)
  return { wanted, 0 }
end
local granted, wait = room(rate, wanted)
if granted > 0 then
  spend(rate, granted)
end
return { granted, wait }
