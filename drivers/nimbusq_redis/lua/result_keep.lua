-- Keep a return value, for a job that travelled through another driver.
--
-- uses     time many job records ended
-- KEYS[1]  root
-- ARGV     1 testing · 2 ref · 3 ttl (seconds) · 4 bytes
-- returns  nothing

keep_result(ARGV[2], ARGV[4], tonumber(ARGV[3]))
notify({ ARGV[2] })
