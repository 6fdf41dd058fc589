-- Newest first.
-- Parameters: before (a seq), limit, queue and fingerprint (null: any). Returns: all columns.
select * from {p}failed
where seq < :before and queue = coalesce(:queue, queue) and fingerprint = coalesce(:fingerprint, fingerprint)
order by seq desc limit :limit;
