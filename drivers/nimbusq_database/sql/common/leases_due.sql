-- Leases that may have ended; a row that somebody else is changing is left to them.
-- Parameters: limit. Returns: the columns of a claim, lease_until, token.
select
  j.id, j.queue, j.wire, j.attempts, j.max_attempts, j.releases, j.blocks, j.reclaims, j.fence, j.run_at,
  j.ending, j.cancel_asked,
  j.lease_until, j.token, {now} as now
from {p}jobs j
where j.check_at <= {now}
order by j.check_at
limit :limit
{skip locked};
