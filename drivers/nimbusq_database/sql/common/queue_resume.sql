-- Lets a queue go on.
-- Parameters: queue.
delete from {p}paused_queues where queue = :queue;
