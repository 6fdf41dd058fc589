-- How jobs ended, and who waits to hear of it. `awaited` is a hash: ref -> the inboxes of its waiters, a text of
-- names; an inbox is a list on which one process blocks for all of its waiters.

-- {state, result or error} as far as the store still knows; nil while the job lives.
local function ended_as(ref)
  if redis.call('HEXISTS', jobs_key, ref) == 1 or redis.call('HEXISTS', running_key, ref) == 1 then
    return nil
  end
  local result = redis.call('GET', root .. 'result:' .. ref)
  if result then
    return { 'result', result }
  end
  local record = redis.call('HGET', root .. 'failed', ref)
  if record then
    return { 'failed', failed_head(record).error }
  end
  local row = redis.call('HGET', root .. 'history', ref)
  if row then
    local head = cjson.decode(row)
    return { head.state, head.error or '' }
  end
  return { 'unknown', '' }
end

-- Tell those who wait for one of the jobs.
local function notify(refs)
  if #refs == 0 then
    return
  end
  local inboxes = get_many(root .. 'awaited', refs)
  for i, ref in ipairs(refs) do
    if inboxes[i] then
      for inbox in string.gmatch(inboxes[i], '%S+') do
        redis.call('RPUSH', root .. 'inbox:' .. inbox, ref)
        redis.call('PEXPIRE', root .. 'inbox:' .. inbox, 60000)
      end
      redis.call('HDEL', root .. 'awaited', ref)
    end
  end
end
