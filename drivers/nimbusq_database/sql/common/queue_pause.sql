-- Stops claims from a queue; no row where it was stopped before.
-- Parameters: queue.
insert into {p}paused_queues (queue) values (:queue) on conflict do nothing;
