-- Insert or replace rows of ended jobs.
--
-- uses     time many records
-- KEYS[1]  root
-- ARGV     1 testing · 2 limit · 3 ttl (seconds) · then: ref, row, ref, row ...
-- returns  nothing

local rows = {}
for i = 4, #ARGV do
  rows[i - 3] = ARGV[i]
end
keep_history(rows, tonumber(ARGV[2]), micros(ARGV[3]))
