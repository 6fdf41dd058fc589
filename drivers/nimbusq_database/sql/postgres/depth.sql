-- Jobs of these queues by state; oldest: seconds that the first due one waits.
-- Parameters: queues. Returns: queue, pending, delayed, running, oldest.
select
  q.queue,
  (select count(*) from {p}jobs j where j.queue = q.queue and j.state = 'queued' and j.run_at <= {now}) as pending,
  (select count(*) from {p}jobs j where j.queue = q.queue and j.state = 'queued' and j.run_at > {now}) as delayed,
  (select count(*) from {p}jobs j where j.queue = q.queue and j.token is not null) as running,
  (
    select {now} - min(j.run_at)
    from generate_series(1, 10) as p (priority)
    cross join lateral (
      select run_at from {p}jobs
      where queue = q.queue and priority = p.priority and state = 'queued' and run_at <= {now}
      order by run_at limit 1
    ) j
  ) as oldest
from unnest(:queues::text[]) as q (queue);
