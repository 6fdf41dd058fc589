-- Stores jobs that differ in their ids and envelopes only, and have no key, gate or batch; one whose id is known is
-- left out. One step for all rows: each step hands the interpreter's lock to and fro.
-- Parameters: bytes (the envelopes, one after the other), pieces of them as [id, start, length]; for all jobs: queue,
-- name, priority, delay, expires_in, max_attempts.
insert into {p}jobs (id, wire, queue, name, priority, run_at, created_at, expires_at, max_attempts)
select
  json_extract(value, '$[0]'), substr(:bytes, json_extract(value, '$[1]'), json_extract(value, '$[2]')),
  :queue, :name, :priority, {now} + :delay, {now}, {now} + :expires_in, :max_attempts
from json_each(:pieces) where true
on conflict do nothing;
