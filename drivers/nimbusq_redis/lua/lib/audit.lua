-- Testing mode only: append a transition to the audit, in the step that makes it.
-- `extra` is a table of what nimbusq.testing.audit can check; times in it are seconds.
local function audit(event, ref, token, attempt, extra)
  extra.at = now / 1e6
  redis.call('XADD', root .. 'audit', '*', 'event', event, 'ref', ref, 'token', token, 'attempt', attempt,
    'extra', cjson.encode(extra))
end
