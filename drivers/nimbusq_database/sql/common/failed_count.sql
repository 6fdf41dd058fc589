-- How many jobs have failed for good.
-- Parameters: queue (null: any). Returns: count.
select count(*) as count from {p}failed where queue = coalesce(:queue, queue);
