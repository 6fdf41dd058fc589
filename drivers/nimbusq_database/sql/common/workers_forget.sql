-- Drops the reports of workers.
-- Parameters: ids.
delete from {p}workers where id {in ids};
