-- Newest first.
-- Parameters: before (a seq), limit, age in seconds, state and queue (null: any). Returns: all columns.
select * from {p}history
where seq < :before and finished_at > {now} - :age
  and state = coalesce(:state, state) and queue = coalesce(:queue, queue)
order by seq desc limit :limit;
