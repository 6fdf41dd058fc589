-- Parameters: id.
delete from {p}failed where id = :id;
