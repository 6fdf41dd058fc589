-- Parameters: queue.
insert into {p}paused_queues (queue) values (:queue) on duplicate key update queue = queue;
