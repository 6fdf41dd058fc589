-- Settlements that only end their jobs and keep history, for claims that still hold them: by far the most.
-- Parameters: ids and tokens, claim by claim; history as in history_push. Returns, in any order: id, settled, already
-- (put back by the same token before). Its rows are locked in the order of the plan: should it meet a settlement of
-- claims that were lost, in another order, the deadlock undoes one of them, which is tried again.
with asked as materialized (
  select * from unnest(:ids::text[], :tokens::text[]) as claim (id, token)
),
ended as (
  delete from {p}jobs j using asked
  where j.id = any (:ids::text[]) and j.id = asked.id and j.token = asked.token
  returning j.id
),
told as (
  insert into {p}history (
    id, queue, name, state, attempt, waited, duration, error, worker, tags, silenced, finished_at
  )
  select
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, (value ->> 4)::int, (value ->> 5)::float8,
    (value ->> 6)::float8, value ->> 7, value ->> 8, value ->> 9, (value ->> 10)::int, {now}
  from jsonb_array_elements(:history::jsonb)
  where value ->> 0 in (select id from ended)
  on conflict (id) do update
  set seq = excluded.seq, queue = excluded.queue, name = excluded.name, state = excluded.state,
    attempt = excluded.attempt, waited = excluded.waited, duration = excluded.duration, error = excluded.error,
    worker = excluded.worker, tags = excluded.tags, silenced = excluded.silenced,
    finished_at = excluded.finished_at
)
select id, 1 as settled, 0 as already from ended
union all
select asked.id, 0, coalesce((j.token is null and j.put_back_by = asked.token)::int, 0)
from asked left join {p}jobs j on j.id = asked.id
where asked.id not in (select id from ended);
