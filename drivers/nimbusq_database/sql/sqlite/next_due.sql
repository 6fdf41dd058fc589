-- When a claim on these queues can find something that is not due yet: a delayed job, or the end of a lease.
-- Parameters: queues. Returns: due (null: nothing is known), now.
select
  min(
    coalesce(min((
      select j.run_at from {p}jobs j
      where j.queue = q.value and j.priority = p.value and j.state = 'queued' and j.run_at > {now}
      order by j.run_at limit 1
    )), 1e12),
    coalesce((select min(check_at) from {p}jobs where check_at is not null), 1e12)
  ) as due,
  {now} as now
from json_each(:queues) q, json_each('[1,2,3,4,5,6,7,8,9,10]') p;
