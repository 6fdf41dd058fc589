-- Drops failed records of at least an age.
-- Parameters: queue (null: any), age in seconds.
delete from {p}failed where queue = coalesce(:queue, queue) and failed_at <= {now} - :age;
