-- Jobs of these queues by state; oldest: seconds that the first due one waits.
-- Parameters: queues. Returns: queue, pending, delayed, running, oldest.
select
  q.queue,
  (
    select count(*) from {p}jobs j
    where j.queue = q.queue collate utf8mb4_bin and j.state = 'queued' and j.run_at <= {now}
  ) as pending,
  (
    select count(*) from {p}jobs j
    where j.queue = q.queue collate utf8mb4_bin and j.state = 'queued' and j.run_at > {now}
  ) as `delayed`,
  (
    select count(*) from {p}jobs j where j.queue = q.queue collate utf8mb4_bin and j.state = 'leased'
  ) as running,
  {now} - min((
    select j.run_at from {p}jobs j
    where j.queue = q.queue collate utf8mb4_bin and j.state = 'queued' and j.priority = p.priority
      and j.run_at <= {now}
    order by j.run_at limit 1
  )) as oldest
from json_table(:queues_json, '$[*]' columns (queue varchar(64) path '$')) as q
cross join (
  select 1 as priority union all select 2 union all select 3 union all select 4 union all select 5
  union all select 6 union all select 7 union all select 8 union all select 9 union all select 10
) as p
group by q.queue;
