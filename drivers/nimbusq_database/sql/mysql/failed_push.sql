-- Stores failed jobs; a record of the same id is replaced and becomes the newest.
-- Parameters, one set a record: its columns.
replace into {p}failed (
  id, queue, name, wire, error, kind, traceback, fingerprint, attempts, max_attempts, failed_at
) values (
  :id, :queue, :name, unhex(:wire), :error, :kind, :traceback, :fingerprint, :attempts, :max_attempts, {now}
);
