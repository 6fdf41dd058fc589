-- Queues that nobody claims from.
-- Returns: queue.
select queue from {p}paused_queues order by queue;
