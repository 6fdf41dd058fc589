-- Due jobs of one queue by priority, due time and arrival; each priority is a search of its own in jobs_due, so
-- that delayed jobs of an urgent one are never stepped over. Rows that another claim holds are left to it.
-- Parameters: queue, limit. Returns: the columns of a claim, gated, expires_at, overlap_digest, batch_cancelled.
select
  j.id, j.queue, j.wire, j.attempts, j.max_attempts, j.releases, j.blocks, j.reclaims, j.fence, j.run_at,
  j.ending, j.cancel_asked,
  j.gated, j.expires_at, j.overlap_digest,
  (select b.cancelled from {p}batches b where b.id = j.batch_id) as batch_cancelled,
  {now} as now
from generate_series(1, 10) as p (priority)
cross join lateral (
  select * from {p}jobs
  where queue = :queue and priority = p.priority and state = 'queued' and run_at <= {now}
  order by run_at, seq
  limit :limit
  for update skip locked
) j
limit :limit;
