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
