-- Batches of the last 7 days.
-- Parameters: ids. Returns: all columns.
select * from {p}batches where id {in ids} and updated_at > {now} - 604800;
