-- Stores failed jobs; a record of the same id is replaced and becomes the newest.
-- Parameters, one list a column.
insert into {p}failed (
  id, queue, name, wire, error, kind, traceback, fingerprint, attempts, max_attempts, failed_at
)
select id, queue, name, wire, error, kind, traceback, fingerprint, attempts, max_attempts, {now}
from unnest(
  :id::text[], :queue::text[], :name::text[], :wire::bytea[], :error::text[], :kind::text[], :traceback::text[],
  :fingerprint::text[], :attempts::int[], :max_attempts::int[]
) with ordinality as record (
  id, queue, name, wire, error, kind, traceback, fingerprint, attempts, max_attempts, place
)
order by place
on conflict (id) do update
set seq = excluded.seq, queue = excluded.queue, name = excluded.name, wire = excluded.wire, error = excluded.error,
  kind = excluded.kind, traceback = excluded.traceback, fingerprint = excluded.fingerprint,
  attempts = excluded.attempts, max_attempts = excluded.max_attempts, failed_at = excluded.failed_at;
