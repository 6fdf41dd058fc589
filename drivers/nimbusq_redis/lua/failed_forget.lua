-- Forget failed records.
--
-- uses     time many records
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · then refs
-- returns  how many there were

local count = 0
for i = 2, #ARGV do
  if forget_failed(ARGV[i]) then
    count = count + 1
  end
end
return count
