-- Due jobs of one queue by priority, due time and arrival. Naming the priorities makes each a search in
-- jobs_due, so that delayed jobs of an urgent priority are never stepped over. Rows that another claim holds are
-- left to it.
-- Parameters: queue, limit. Returns: the columns of a claim, gated, expires_at, overlap_digest, batch_cancelled.
select
  j.id, j.queue, j.wire, j.attempts, j.max_attempts, j.releases, j.blocks, j.reclaims, j.fence, j.run_at,
  j.ending, j.cancel_asked,
  j.gated, j.expires_at, j.overlap_digest,
  (select b.cancelled from {p}batches b where b.id = j.batch_id) as batch_cancelled,
  {now} as now
from {p}jobs j force index ({p}jobs_due)
where j.queue = :queue and j.state = 'queued' and j.priority in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10) and j.run_at <= {now}
order by j.priority, j.run_at, j.seq
limit :limit
for update skip locked;
