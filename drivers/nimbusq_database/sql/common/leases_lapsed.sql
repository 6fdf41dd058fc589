-- These leases have ended: the jobs are due again.
-- Parameters: ids.
update {p}jobs
set state = 'queued', token = null, lease_until = null, check_at = null, held_until = null,
  run_at = {now}, reclaims = reclaims + 1
where id {in ids};
