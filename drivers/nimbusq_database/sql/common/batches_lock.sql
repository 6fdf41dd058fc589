-- Batches of the last 7 days.
-- By their ids a few are found, by their times all that live: the latter is written so that no index serves it.
-- Parameters: ids. Returns: all columns.
select *, {now} as now from {p}batches where id {in ids} and updated_at + 604800 > {now} order by id {for update};
