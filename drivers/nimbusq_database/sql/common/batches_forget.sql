-- Drops batches.
-- Parameters: ids.
delete from {p}batches where id {in ids};
