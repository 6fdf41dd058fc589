-- Whether a claim on these queues would find something.
-- Parameters: queues. Returns: found.
select
  coalesce((select min(check_at) from {p}jobs where check_at is not null) <= {now}, 0)
  or max(
    exists (
      select 1 from {p}jobs j
      where j.queue = q.queue collate utf8mb4_bin and j.state = 'queued' and j.priority = p.priority
        and j.run_at <= {now}
    ) and not exists (select 1 from {p}paused_queues s where s.queue = q.queue collate utf8mb4_bin)
  ) as found
from json_table(:queues_json, '$[*]' columns (queue varchar(64) path '$')) as q
cross join (
  select 1 as priority union all select 2 union all select 3 union all select 4 union all select 5
  union all select 6 union all select 7 union all select 8 union all select 9 union all select 10
) as p;
