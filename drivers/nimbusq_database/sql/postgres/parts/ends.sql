-- The settlements of `settle_ends`: asked, those that ended, and what is told of them. A list of history columns that
-- is shorter than the ids goes on as null. The rows are locked in the order of the plan: should it meet a settlement
-- of claims that were lost, in another order, the deadlock undoes one of them, which is tried again.
-- Tokens are compared in a way that their index cannot serve: a plan would read it from end to end.
asked as materialized (
  select
    unnest(:ids::text[]) as id, unnest(:tokens::text[]) as token, unnest(:waited::float8[]) as waited,
    unnest(:durations::float8[]) as duration, unnest(:states::text[]) as state, unnest(:errors::text[]) as error,
    unnest(:tags::text[]) as tags, unnest(:silenced::int[]) as silenced
),
ended as (
  delete from {p}jobs j using asked
  where j.id = any (:ids::text[]) and j.id = asked.id and (j.token = asked.token) is true
  returning
    j.id, j.queue, j.name, j.attempts, asked.waited, asked.duration, asked.state, asked.error, asked.tags,
    asked.silenced
),
told as (
  insert into {p}history (
    id, queue, name, state, attempt, waited, duration, error, worker, tags, silenced, finished_at
  )
  select
    id, queue, name, coalesce(state, 'done'), attempts, waited, duration, coalesce(error, ''), :worker::text,
    coalesce(tags, '[]'), coalesce(silenced, 0), {now}
  from ended where waited is not null
  {part replaced}
),
missed as (
  select asked.id, j.token is null and j.put_back_by = asked.token as already
  from asked left join lateral (select token, put_back_by from {p}jobs where id = asked.id limit 1) j on true
  where asked.id not in (select id from ended)
)
