-- Whether a claim on these queues would find something.
-- Parameters: queues. Returns: found.
select
  coalesce((select min(check_at) from {p}jobs where check_at is not null) <= {now}, false)
  or exists (
    select
    from unnest(:queues::text[]) as q (queue)
    cross join generate_series(1, 10) as p (priority)
    cross join lateral (
      select 1 from {p}jobs
      where queue = q.queue and priority = p.priority and state = 'queued' and run_at <= {now}
      order by run_at limit 1
    ) j
    where not exists (select from {p}paused_queues paused where paused.queue = q.queue)
  ) as found;
