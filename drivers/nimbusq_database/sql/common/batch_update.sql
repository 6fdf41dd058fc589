-- Writes the counters and flags of a batch.
-- Parameters: id, and the columns that change; finishes = 1 ends the batch.
update {p}batches
set mark = :mark, total = :total, pending = :pending, failed = :failed, errors = :errors, sealed = :sealed,
  cancelled = :cancelled, updated_at = {now}, finished_at = case when :finishes = 1 then {now} else finished_at end
where id = :id;
