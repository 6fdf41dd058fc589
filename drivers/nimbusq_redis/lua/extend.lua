-- Renew leases, an expired one too while nobody has taken it back.
--
-- uses     time many audit job bell queues overlap
-- flags    allow-oom
-- KEYS[1]  root
-- ARGV     1 testing · 2 lease (seconds) · then for each claim: ref, queue, token
-- returns  for each claim 1 (renewed), 0 (the token is not the job's any more) or 2 (renewed, and a cancel was asked)

local lease_until = now + micros(ARGV[2])
local refs, answers, queues = {}, {}, {}
for i = 3, #ARGV, 3 do
  refs[#refs + 1] = ARGV[i]
end

for n, packed in ipairs(get_many(running_key, refs)) do
  local ref, queue, token = ARGV[3 * n], ARGV[3 * n + 1], ARGV[3 * n + 2]
  local state = unpack_state(packed)
  if state.token ~= token then
    answers[n] = 0
  else
    answers[n] = state.cancel and 2 or 1
    gather(queues, queue, lease_until, ref)
    local control = parse_control(state.control)
    if control and control.overlap then
      hold(ref, control, lease_until)
    end
    if testing then
      audit('extend', ref, token, state.attempt, { lease_until = lease_until / 1e6 })
    end
  end
end

for queue, members in pairs(queues) do
  for first = 1, #members, PIECE do -- GT: never shorten a lease
    redis.call('ZADD', root .. 'leased:' .. queue, 'GT', unpack(members, first, math.min(first + PIECE - 1, #members)))
  end
  redis.call('ZADD', root .. 'timers', 'LT', lease_until, 'l:' .. queue)
end
return answers
