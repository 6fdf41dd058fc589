-- Store a job again under its id, due now, whatever is remembered of its earlier life: from the failed store, or as
-- raw bytes.
--
-- uses     time many audit job pushed bell queues tombstones unique enqueue records
-- KEYS[1]  root
-- ARGV     1 testing · 2 '1' if it must be in the failed store, and leaves it · 3 ref · 4 queue · 5 control · 6 wire
-- returns  nothing where it is not in the failed store, '' where it is stored, else who holds its unique key: then the
--          record stays
--
-- Twice    the second call finds no record.

local ref = ARGV[3]
if ARGV[2] == '1' and redis.call('HEXISTS', root .. 'failed', ref) == 0 then
  return false
end
local gone = epitaphs({ ref })[1]
unbury(ref)
local holder = enqueue({ ref, ARGV[4], ARGV[5], ARGV[6] })[1]
if holder ~= '' then
  if gone then
    bury({ ref, gone })
  end
  return holder
end
if ARGV[2] == '1' then
  forget_failed(ref)
end
return ''
