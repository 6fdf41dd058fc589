-- Push members and add them to the pending set.
--
-- uses     time many audit job pushed bell queues tombstones unique enqueue batch
-- KEYS[1]  root
-- ARGV     1 testing · 2 id · 3 offset (members that the producer has added before), or '' from inside a job ·
--          then for each member: member ref, ref, queue, control, wire
-- returns  {'unknown'}, {'finished'}, {'sealed'}, {'gap', mark}, {'known', mark} where the offset is below the mark,
--          or {'added', mark, then for each member '' or the ref of the job that holds its unique key}
--
-- Twice    members that the batch has or had are left alone, whether it is sealed or finished by now or not.

local batch = open_batch(ARGV[2])
local offset = tonumber(ARGV[3])
if not batch then
  return { 'unknown' }
elseif offset and offset < batch.mark then
  return { 'known', batch.mark }
elseif batch.finished ~= '' then
  return { 'finished' }
elseif offset and batch.sealed == '1' then
  return { 'sealed' }
elseif offset and offset > batch.mark then
  return { 'gap', batch.mark }
end

-- All in one call, which keeps their order.
local entries, members, positions, answers = {}, {}, {}, { 'added', 0 }
for i = 4, #ARGV, 5 do
  answers[#answers + 1] = ''
  if redis.call('SISMEMBER', batch.key .. ':members', ARGV[i]) == 0 then
    members[#members + 1], positions[#positions + 1] = ARGV[i], #answers
    for part = 1, 4 do
      entries[#entries + 1] = ARGV[i + part]
    end
  end
end
for n, holder in ipairs(enqueue(entries)) do
  answers[positions[n]] = holder
  if holder == '' then
    redis.call('SADD', batch.key .. ':members', members[n])
    redis.call('SADD', batch.key .. ':pending', members[n])
  end
end
if offset then
  batch.mark = batch.mark + #answers - 2
end
batch.changed = true
close_batches()
answers[2] = batch.mark
return answers
