-- The jobs that a claim with this token holds: its reply was lost and it is asked again.
-- Parameters: token. Returns: the columns of a claim (see claim_candidates).
select
  j.id, j.queue, j.wire, j.attempts, j.max_attempts, j.releases, j.blocks, j.reclaims, j.fence, j.run_at,
  j.ending, j.cancel_asked,
  {now} as now
from {p}jobs j
where j.check_at is not null and j.token = :token
order by j.priority, j.run_at, j.seq;
