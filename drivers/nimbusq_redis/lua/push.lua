-- Store jobs: all of them, or none where the server is out of memory.
--
-- uses     time many audit job pushed bell queues tombstones plain_push unique enqueue
-- KEYS[1]  root
-- ARGV     1 testing · then for each job: ref, queue, control, wire
-- returns  for each job '' (stored, or known), or the ref of the job that holds its unique key
--
-- Twice    a known id, or one that ended within the last minute, changes nothing.

local entries = {}
for i = 2, #ARGV do
  entries[i - 1] = ARGV[i]
end
return enqueue(entries)
