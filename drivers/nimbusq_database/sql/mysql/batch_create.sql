-- Stores a new batch, open; one that is known changes nothing.
-- Parameters, one set: the columns of a new batch.
insert into {p}batches (
  id, name, then_wire, catch_wire, finally_wire, cancel_on_failure, meta, created_at, updated_at
) values (
  :id, :name, unhex(:then_wire), unhex(:catch_wire), unhex(:finally_wire), :cancel_on_failure, :meta, {now}, {now}
) on duplicate key update id = id;
