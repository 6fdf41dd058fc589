-- Due jobs of one queue by priority, due time and arrival. Naming the priorities makes each a search in
-- jobs_due, so that delayed jobs of an urgent priority are never stepped over.
-- Parameters: queue, limit. Returns: the columns of a claim, gated, expires_at, overlap_digest, batch_cancelled.
select
  j.id, j.queue, j.wire, j.attempts, j.max_attempts, j.releases, j.blocks, j.reclaims, j.fence, j.run_at,
  j.ending, j.cancel_asked,
  j.gated, j.expires_at, j.overlap_digest, b.cancelled as batch_cancelled, {now} as now
from {p}jobs j
left join {p}batches b on b.id = j.batch_id
where j.queue = :queue and j.state = 'queued' and j.priority in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10) and j.run_at <= {now}
order by j.priority, j.run_at, j.seq
limit :limit;
