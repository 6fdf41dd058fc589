-- Push members and add them to the pending set.
--
-- uses     time many audit job bell queues tombstones unique enqueue batch
-- KEYS[1]  root
-- ARGV     1 testing · 2 id · 3 offset (members that the producer has added before), or '' from inside a job ·
--          then for each member: member ref, ref, queue, control, wire
-- returns  {'unknown'}, {'finished'}, {'sealed'}, {'gap', mark}, {'known', mark} where the offset is below the mark,
--          or {'added', mark, then for each member '' or the ref of the job that holds its unique key}
--
-- Twice    members that the batch has or had are left alone.

local batch = open_batch(ARGV[2])
if not batch then
  return { 'unknown' }
elseif batch.finished ~= '' then
  return { 'finished' }
end
local offset = tonumber(ARGV[3])
if offset then
  if batch.sealed == '1' then
    return { 'sealed' }
  elseif offset ~= batch.mark then
    return { offset < batch.mark and 'known' or 'gap', batch.mark }
  end
end

local answers, count = { 'added', 0 }, 0
for i = 4, #ARGV, 5 do
  local member, holder = ARGV[i], ''
  count = count + 1
  if redis.call('SISMEMBER', batch.key .. ':members', member) == 0 then
    holder = enqueue({ ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4] })[1]
    if holder == '' then
      redis.call('SADD', batch.key .. ':members', member)
      redis.call('SADD', batch.key .. ':pending', member)
    end
  end
  answers[#answers + 1] = holder
end
if offset then
  batch.mark = batch.mark + count
end
batch.changed = true
close_batches()
answers[2] = batch.mark
return answers
