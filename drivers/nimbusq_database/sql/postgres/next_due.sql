-- When a claim on these queues can find something that is not due yet: a delayed job, or the end of a lease.
-- Parameters: queues. Returns: due (null: nothing is known), now.
select
  least(
    (
      select min(j.run_at)
      from unnest(:queues::text[]) as q (queue)
      cross join generate_series(1, 10) as p (priority)
      cross join lateral (
        select run_at from {p}jobs
        where queue = q.queue and priority = p.priority and state = 'queued' and run_at > {now}
        order by run_at limit 1
      ) j
    ),
    (select min(check_at) from {p}jobs where check_at is not null)
  ) as due,
  {now} as now;
