-- Due jobs of one queue by priority, due time and arrival. Naming the priorities makes each a search in
-- jobs_due, so that delayed jobs of an urgent priority are never stepped over. Rows that another claim holds are
-- left to it.
-- In front of the first job, the index keeps the entries of those that were claimed before, until InnoDB purges
-- them. To step over one of them costs next to nothing where no rows are locked, else a look for whoever may have
-- changed it, and from each empty priority they are stepped over again. So the first statement looks where the due
-- jobs begin, and the second locks from there on; a job that comes in between is the next claim's.
-- Parameters: queue, limit. Returns: the columns of a claim, gated, expires_at, overlap_digest, batch_cancelled.
select coalesce(max(first.priority), 11), coalesce(max(first.run_at), 0) into @nimbusq_priority, @nimbusq_run_at
from (
  select j.priority, j.run_at
  from {p}jobs j force index ({p}jobs_due)
  where j.queue = :queue and j.state = 'queued' and j.priority in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10) and j.run_at <= {now}
  order by j.priority, j.run_at
  limit 1
) as first;
select
  j.id, j.queue, j.wire, j.attempts, j.max_attempts, j.releases, j.blocks, j.reclaims, j.fence, j.run_at,
  j.ending, j.cancel_asked,
  j.gated, j.expires_at, j.overlap_digest,
  (select b.cancelled from {p}batches b where b.id = j.batch_id) as batch_cancelled,
  {now} as now
from {p}jobs j force index ({p}jobs_due)
where j.queue = :queue and j.state = 'queued' and j.priority in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10) and j.run_at <= {now}
  and (j.priority > @nimbusq_priority or (j.priority = @nimbusq_priority and j.run_at >= @nimbusq_run_at))
order by j.priority, j.run_at, j.seq
limit :limit
for update skip locked;
