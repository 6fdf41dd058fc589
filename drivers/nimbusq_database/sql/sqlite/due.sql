-- Whether a claim on these queues would find something.
-- Parameters: queues. Returns: found.
select
  exists (select 1 from {p}jobs where check_at <= {now})
  or exists (
    select 1 from json_each(:queues) q, json_each('[1,2,3,4,5,6,7,8,9,10]') p
    where exists (
      select 1 from {p}jobs j
      where j.queue = q.value and j.priority = p.value and j.state = 'queued' and j.run_at <= {now}
    ) and not exists (select 1 from {p}paused_queues where queue = q.value)
  ) as found;
