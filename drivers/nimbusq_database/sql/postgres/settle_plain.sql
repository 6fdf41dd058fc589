-- Settlements that push nothing and count in no batch: what ends leaves with its unique keys, what is put back is
-- due again, results and history are kept. All for claims that still hold their jobs, in one statement. Tokens are
-- compared as in parts/ends.sql.
-- Parameters: rows of {id, token, ends, delay, counted, retries, error}; results as result_ids, results, ttls;
-- history as in history_push. Returns in the rows' order: settled, already (put back by the same token before).
with asked as materialized (
  select claim.*, place
  from jsonb_array_elements(:rows::jsonb) with ordinality as element (value, place)
  cross join lateral jsonb_to_record(value) as claim (
    id text, token text, ends boolean, delay float8, counted int, retries boolean, error text
  )
),
held as materialized (
  select j.id, j.ending, j.unique_lock, asked.ends, asked.delay, asked.counted, asked.retries, asked.error
  from {p}jobs j join asked on asked.id = j.id and (j.token = asked.token) is true
  where j.id = any (array(select id from asked))
  order by j.id
  for update of j
),
ended as (
  delete from {p}jobs where id = any (array(select id from held where ends))
),
freed as (
  delete from {p}locks using held
  where {p}locks.digest = any (array(select unique_lock from held where ends))
    and held.ends and {p}locks.digest = held.unique_lock and {p}locks.token = held.id
),
put_back as (
  update {p}jobs
  set state = 'queued', put_back_by = token, token = null, lease_until = null, check_at = null, held_until = null,
    run_at = {now} + held.delay,
    attempts = attempts - case when held.retries or held.ending is not null then 0 else 1 end,
    releases = releases + case when held.ending is null then held.counted else 0 end,
    error = coalesce(held.error, {p}jobs.error)
  from held
  where {p}jobs.id = any (array(select id from held where not ends)) and {p}jobs.id = held.id
),
kept as (
  insert into {p}results (id, result, expires_at)
  select result.id, result.body, {now} + result.ttl
  from unnest(:result_ids::text[], :results::bytea[], :ttls::float8[]) as result (id, body, ttl)
  where result.id in (select id from held where ends)
  on conflict (id) do update set result = excluded.result, expires_at = excluded.expires_at
),
told as (
  insert into {p}history (
    id, queue, name, state, attempt, waited, duration, error, worker, tags, silenced, finished_at
  )
  select
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, (value ->> 4)::int, (value ->> 5)::float8,
    (value ->> 6)::float8, value ->> 7, value ->> 8, value ->> 9, (value ->> 10)::int, {now}
  from jsonb_array_elements(:history::jsonb)
  where value ->> 0 in (select id from held where ends)
  {part replaced}
)
select
  (held.id is not null)::int as settled,
  (j.token is null and j.put_back_by is not null and j.put_back_by = asked.token)::int as already
from asked
left join held on held.id = asked.id
left join lateral (select token, put_back_by from {p}jobs where id = asked.id limit 1) j on true
order by asked.place;
