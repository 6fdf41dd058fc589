-- Live jobs in the order of their arrival. A delayed job is queued with run_at ahead, a ready one is due.
-- Parameters: after (a seq), limit, queue and state (null: any). Returns: all columns, now.
select j.*, {now} as now from {p}jobs j
where j.seq > :after and j.queue = coalesce(:queue, j.queue)
  and coalesce(:state, 'any') in (
    'any', case when j.state <> 'queued' then j.state when j.run_at <= {now} then 'ready' else 'delayed' end
  )
order by j.seq limit :limit;
