-- Newest first.
-- Parameters: before (a seq), limit. Returns: all columns.
select * from {p}batches where seq < :before order by seq desc limit :limit;
