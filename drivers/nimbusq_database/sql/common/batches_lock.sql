-- Parameters: ids. Returns: all columns.
select *, {now} as now from {p}batches where id {in ids} order by id {for update};
