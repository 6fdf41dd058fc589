-- Jobs enter the store here, whoever pushes them: a producer, a settlement, a batch's end, a schedule, a retry.

-- What the audit of a push tells, read from the envelope's header (testing mode only).
local function audit_push(ref, record, control, due)
  local extra = { run_at = due / 1e6, max_attempts = control.max or 4, unique = control.slot }
  local header = read_header(record)
  local chain, callback = header.chain, header.callback
  if chain then
    extra.chain, extra.index = chain.id, chain.index or 0
  end
  if callback then
    extra.callback, extra.of = callback.kind, callback.of
  end
  if header.batch_id then
    extra.batch, extra.member_ref = header.batch_id, ref
    extra.member = chain and chain.id or nil
  end
  audit('push', ref, '', 0, extra)
end

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
          -- as text: of a number Redis writes seventeen digits, and reads them again
          gather(ready, queue, string.format('%d', ready_score(priority, due) + n - 1), ref)
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
