-- Stores a new batch, open; one that is known changes nothing.
-- Parameters, one list a column: the columns of a new batch.
insert into {p}batches (
  id, name, then_wire, catch_wire, finally_wire, cancel_on_failure, meta, created_at, updated_at
)
select id, name, then_wire, catch_wire, finally_wire, cancel_on_failure, meta, {now}, {now}
from unnest(
  :id::text[], :name::text[], :then_wire::bytea[], :catch_wire::bytea[], :finally_wire::bytea[],
  :cancel_on_failure::int[], :meta::text[]
) as batch (id, name, then_wire, catch_wire, finally_wire, cancel_on_failure, meta)
on conflict do nothing;
