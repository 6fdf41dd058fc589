-- Jobs that differ in their ids and envelopes only, and have no key, gate or batch. Whoever listens is told with
-- their commit, if there is something to tell.
-- Parameters, one list a column: id, wire; one value for all: queue, name, priority, delay, expires_in,
-- max_attempts; notice (null: nothing is told).
with told as materialized (
  select case when :notice::text is not null then pg_notify('{p}jobs', :notice)::text end as told
)
insert into {p}jobs (id, wire, queue, name, priority, run_at, created_at, expires_at, max_attempts)
select
  job.id, job.wire, :queue::text, :name::text, :priority::int, {now} + :delay::float8, {now},
  {now} + :expires_in::float8, :max_attempts::int
from told cross join unnest(:id::text[], :wire::bytea[]) as job (id, wire)
