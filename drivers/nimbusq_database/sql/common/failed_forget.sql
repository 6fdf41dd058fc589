-- Drops one failed record.
-- Parameters: id.
delete from {p}failed where id = :id;
