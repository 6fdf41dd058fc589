-- Stores jobs; one whose id is known or whose unique slot is held is left out.
-- Parameters, one set a job: delay and expires_in in seconds, the other columns as they are.
insert into {p}jobs (
  id, queue, name, wire, priority, run_at, created_at, expires_at, max_attempts, gated,
  unique_digest, unique_lock, overlap_digest, overlap_expire, batch_id, member_id
) values (
  :id, :queue, :name, unhex(:wire), :priority, {now} + :delay, {now}, {now} + :expires_in, :max_attempts, :gated,
  :unique_digest, :unique_lock, :overlap_digest, :overlap_expire, :batch_id, :member_id
) on duplicate key update id = id;
