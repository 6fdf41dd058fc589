-- Batches of the last 7 days, newest first.
-- Parameters: before (a seq), limit. Returns: all columns.
select * from {p}batches where seq < :before and updated_at > {now} - 604800 order by seq desc limit :limit;
