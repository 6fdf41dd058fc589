-- Seal a batch, cancel it, count a member by hand, or look at it.
--
-- uses     time many audit job pushed bell queues tombstones unique enqueue batch
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 id · 3 'seal', 'cancel' (which seals too), 'record' or 'find' ·
--          4 member · 5 failed ('1' or '') · 6 error (of record)
-- returns  nothing where the batch is unknown, else {counted ('1' or '0'), finished by this call, batch state}
--
-- Twice    each one leaves a batch that it has changed before as it is.

local batch = open_batch(ARGV[2])
if not batch then
  return false
end
local counted = true
if ARGV[3] == 'record' then
  counted = count_member(batch, ARGV[4], ARGV[5] == '1', ARGV[6])
elseif ARGV[3] == 'seal' and batch.sealed ~= '1' then
  batch.sealed, batch.changed = '1', true
elseif ARGV[3] == 'cancel' and batch.finished == '' and batch.cancelled ~= '1' then
  batch.sealed, batch.cancelled, batch.changed = '1', '1', true
end
local done = ARGV[3] ~= 'find' and finish_if_due(batch)
close_batches()
return { counted and '1' or '0', done and '1' or '0', batch_state(batch) }
