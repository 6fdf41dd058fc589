-- Jobs of these queues by state; oldest: seconds that the first due one waits.
-- Parameters: queues. Returns: queue, pending, delayed, running, oldest.
select
  q.value as queue,
  (select count(*) from {p}jobs j where j.queue = q.value and j.state = 'queued' and j.run_at <= {now}) as pending,
  (select count(*) from {p}jobs j where j.queue = q.value and j.state = 'queued' and j.run_at > {now}) as delayed,
  (select count(*) from {p}jobs j where j.queue = q.value and j.token is not null) as running,
  (
    select {now} - min((
      select j.run_at from {p}jobs j
      where j.queue = q.value and j.priority = p.value and j.state = 'queued' and j.run_at <= {now}
      order by j.run_at limit 1
    ))
    from json_each('[1,2,3,4,5,6,7,8,9,10]') p
  ) as oldest
from json_each(:queues) q;
