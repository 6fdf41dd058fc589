-- Parameters: queue.
delete from {p}paused_queues where queue = :queue;
