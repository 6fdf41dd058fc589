-- How one job ended.
-- Parameters: id. Returns: all columns.
select * from {p}history where id = :id;
