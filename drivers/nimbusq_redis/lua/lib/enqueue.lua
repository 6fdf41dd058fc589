-- Jobs enter the store here, whoever pushes them: a producer, a settlement, a batch's end, a schedule, a retry.

-- Store the jobs of `entries` (ref, queue, control, wire, ref, queue ...); answers one value for each: '' where it
-- is stored or its id is known, else who holds its unique key. Idempotent by ref.
local function enqueue(entries)
  local refs, answers, ready = {}, {}, {}
  for i = 1, #entries, 4 do
    refs[#refs + 1] = entries[i]
  end
  local gone = epitaphs(refs)
  for n, ref in ipairs(refs) do
    local queue, text, wire = entries[4 * n - 2], entries[4 * n - 1], entries[4 * n]
    local record = text .. '\n' .. wire
    answers[n] = ''
    if not gone[n] and redis.call('HSETNX', jobs_key, ref, record) == 1 then
      local control = parse_control(text) or {}
      local holder = take_unique(ref, control)
      if holder then
        redis.call('HDEL', jobs_key, ref)
        answers[n] = holder
      else
        local due = now + micros(control.delay or 0)
        local priority = control.priority or 5
        if control.expires or (due > now and priority ~= 5) then
          redis.call('HSET', waiting_key, ref, cmsgpack.pack({
            attempt = 0,
            priority = priority ~= 5 and priority or nil,
            expires = control.expires and now + micros(control.expires) or nil,
          }))
        end
        if due > now then
          line_up(ref, queue, priority, due, n - 1)
        else
          gather(ready, queue, ready_text(priority, due + n - 1), ref)
        end
        if testing then
          audit_push(ref, record, control, due)
        end
      end
    end
  end
  for queue, members in pairs(ready) do
    call_many('ZADD', root .. 'ready:' .. queue, members)
    ring(queue)
  end
  return answers
end
