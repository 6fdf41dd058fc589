-- Stores jobs that differ in their ids and envelopes only, and have no key, gate or batch; one whose id is known is
-- left out. Whoever listens is told with its commit, if there is something to tell.
-- Parameters: ids and wires, job by job; queue, name, priority, delay, expires_in and max_attempts of them all;
-- notice (null: nothing is told). Returns: stored (how many), told.
with stored as (
  insert into {p}jobs (id, wire, queue, name, priority, run_at, created_at, expires_at, max_attempts)
  select
    id, wire, :queue::text, :name::text, :priority::int, {now} + :delay::float8, {now}, {now} + :expires_in::float8,
    :max_attempts::int
  from unnest(:ids::text[], :wires::bytea[]) as job (id, wire)
  on conflict do nothing
  returning 1
)
select
  count(*)::int as stored,
  case when :notice::text is not null and count(*) > 0 then pg_notify('{p}jobs', :notice)::text end as told
from stored;
