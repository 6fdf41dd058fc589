-- When a claim on these queues can find something that is not due yet: a delayed job, or the end of a lease.
-- Parameters: queues. Returns: due, now.
select
  least(
    coalesce(min((
      select j.run_at from {p}jobs j
      where j.queue = q.queue collate utf8mb4_bin and j.state = 'queued' and j.priority = p.priority
        and j.run_at > {now}
      order by j.run_at limit 1
    )), 1e12),
    coalesce((select min(check_at) from {p}jobs where check_at is not null), 1e12)
  ) as due,
  {now} as now
from json_table(:queues_json, '$[*]' columns (queue varchar(64) path '$')) as q
cross join (
  select 1 as priority union all select 2 union all select 3 union all select 4 union all select 5
  union all select 6 union all select 7 union all select 8 union all select 9 union all select 10
) as p;
