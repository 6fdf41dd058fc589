-- Parameters: ids. Returns: all columns.
select * from {p}batches where id {in ids};
