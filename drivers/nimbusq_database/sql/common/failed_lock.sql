-- One failed record, locked.
-- Parameters: id. Returns: all columns.
select * from {p}failed where id = :id {for update};
