-- Stores jobs; one whose id is known or whose unique slot is held is left out.
-- Parameters, one list a column: delay and expires_in in seconds, the other columns as they are.
insert into {p}jobs (
  id, queue, name, wire, priority, run_at, created_at, expires_at, max_attempts, gated,
  unique_digest, unique_lock, overlap_digest, overlap_expire, batch_id, member_id
)
select
  id, queue, name, wire, priority, {now} + delay, {now}, {now} + expires_in, max_attempts, gated,
  unique_digest, unique_lock, overlap_digest, overlap_expire, batch_id, member_id
from unnest(
  :id::text[], :queue::text[], :name::text[], :wire::bytea[], :priority::int[], :delay::float8[],
  :expires_in::float8[], :max_attempts::int[], :gated::int[], :unique_digest::text[], :unique_lock::text[],
  :overlap_digest::text[], :overlap_expire::float8[], :batch_id::text[], :member_id::text[]
) with ordinality as job (
  id, queue, name, wire, priority, delay, expires_in, max_attempts, gated, unique_digest, unique_lock,
  overlap_digest, overlap_expire, batch_id, member_id, place
)
order by place
on conflict do nothing;
