-- Parameters: queue.
insert into {p}paused_queues (queue) values (:queue) on conflict do nothing;
