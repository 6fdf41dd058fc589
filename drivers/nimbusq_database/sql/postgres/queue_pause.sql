-- Parameters, one list a column: queue.
insert into {p}paused_queues (queue) select queue from unnest(:queue::text[]) as queue on conflict do nothing;
