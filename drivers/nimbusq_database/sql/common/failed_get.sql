-- One failed record.
-- Parameters: id. Returns: all columns.
select * from {p}failed where id = :id;
