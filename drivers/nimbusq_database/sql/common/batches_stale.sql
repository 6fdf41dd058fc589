-- Batches that have not changed for so long; locked ones are left out.
-- Parameters: age in seconds, limit. Returns: id.
select id from {p}batches where updated_at <= {now} - :age order by updated_at limit :limit {skip locked};
